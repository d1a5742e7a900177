"""Where a claim looks: behind what was claimed, and now and then at the whole."""

from datetime import UTC, datetime, timedelta

from dispatcher.store.looks import BEGINNING, END, FAIR_EVERY, SLACK, Look, Marks, Whole

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def known(*priorities: int) -> Marks:
    marks = Marks()
    for priority in priorities:
        marks.know(1, priority)
    return marks


def test_look_begins_where_the_last_one_came_to() -> None:
    marks = known(0)
    assert marks.looks({1: None}, whole=False) == [Look(1, 0, BEGINNING, END)]
    marks.found([(1, 0, NOON), (1, 0, LATER)], whole=False)
    assert marks.looks({1: None}, whole=False) == [Look(1, 0, LATER - SLACK, END)]
    marks.found([(1, 0, NOON)], whole=False)
    assert marks.looks({1: None}, whole=False) == [Look(1, 0, LATER - SLACK, END)]


def test_look_at_the_whole_begins_at_the_front_and_may_move_the_mark_back() -> None:
    marks = known(0)
    marks.found([(1, 0, LATER)], whole=False)
    assert marks.looks({1: None}, whole=True) == [Look(1, 0, BEGINNING, END)]
    marks.found([(1, 0, NOON)], whole=True)
    assert marks.looks({1: None}, whole=False) == [Look(1, 0, NOON - SLACK, END)]


def test_urgent_lanes_come_first_except_in_each_eighth_claim() -> None:
    marks = known(0, 1, 100)
    orders = [
        [look.priority for look in marks.looks({1: None}, whole=False)]
        for _ in range(2 * FAIR_EVERY)
    ]
    assert orders.count([100, 1, 0]) == 2
    assert orders.count([0, 1, 100]) == 2 * (FAIR_EVERY - 1)


def test_time_between_looks_at_the_whole_grows_with_what_they_take() -> None:
    now = [100.0]
    whole = Whole(1.0, clock=lambda: now[0])
    assert whole.begin()
    now[0] += 0.5
    whole.done()
    now[0] += 9.9
    assert not whole.begin()
    now[0] += 0.1
    assert whole.begin()
    whole.done()
    now[0] += 1.0
    assert whole.begin()


def test_look_that_waited_for_a_lock_puts_the_next_one_off_by_ten_seconds_at_most() -> None:
    now = [100.0]
    whole = Whole(1.0, clock=lambda: now[0])
    assert whole.begin()
    now[0] += 30
    whole.done()
    now[0] += 10
    assert whole.begin()
