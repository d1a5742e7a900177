"""Where a claim looks: behind what was claimed, and now and then at the whole."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from dispatcher.delivery.store.looks import BEGINNING, END, FAIR_EVERY, SLACK, Look, Marks, Whole

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


def first(marks: Marks, endpoint_id: int) -> int:
    """Return the priority that a claim looks at first, and end its turn."""
    looks = marks.looks({endpoint_id: None}, whole=False)
    marks.end_turn([endpoint_id])
    return looks[0].priority


def test_claim_that_is_made_again_looks_as_it_did() -> None:
    marks = known(0, 100)
    for _ in range(FAIR_EVERY - 1):
        first(marks, 1)
    for _ in range(2):
        assert marks.looks({1: None}, whole=False)[0].priority == 100
    assert [first(marks, 1), first(marks, 1)] == [100, 0]


def test_urgent_lanes_come_first_except_in_each_eighth_claim_when_all_others_take_turns() -> None:
    marks = known(0, 1, 100)
    firsts = Counter(first(marks, 1) for _ in range(4 * FAIR_EVERY))
    assert firsts == {0: 4 * (FAIR_EVERY - 1), 1: 2, 100: 2}


def test_less_urgent_lanes_come_first_at_each_endpoint_however_claims_alternate() -> None:
    marks = known(0, 100)
    for priority in (0, 100):
        marks.know(2, priority)
    firsts = Counter(
        (endpoint, first(marks, endpoint)) for _ in range(2 * FAIR_EVERY) for endpoint in (1, 2)
    )
    assert firsts[1, 100] == firsts[2, 100] == 2


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
