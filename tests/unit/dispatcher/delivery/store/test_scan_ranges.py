"""Scan ranges: from the cursor, and in a full scan from the beginning."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from holdfast.dispatcher.delivery.store.scan_ranges import (
    BEGINNING,
    END,
    FAIR_EVERY,
    SLACK,
    FullScanTimer,
    ScanCursors,
    ScanRange,
)

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def known(*priorities: int) -> ScanCursors:
    cursors = ScanCursors()
    for priority in priorities:
        cursors.know(1, priority)
    return cursors


def test_range_begins_where_the_last_claim_came_to() -> None:
    cursors = known(0)
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, BEGINNING, END)]
    cursors.found([(1, 0, NOON), (1, 0, LATER)], full=())
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, LATER - SLACK, END)]
    cursors.found([(1, 0, NOON)], full=())
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, LATER - SLACK, END)]


def test_full_scan_begins_at_the_front_and_may_move_the_cursor_back() -> None:
    cursors = known(0)
    cursors.found([(1, 0, LATER)], full=())
    assert cursors.ranges({1: None}, full={1}) == [ScanRange(1, 0, BEGINNING, END)]
    cursors.found([(1, 0, NOON)], full={1})
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, NOON - SLACK, END)]


def first(cursors: ScanCursors, endpoint_id: int) -> int:
    """Return the priority that a claim scans first, and end its turn."""
    ranges = cursors.ranges({endpoint_id: None}, full=())
    cursors.end_turn([endpoint_id])
    return ranges[0].priority


def test_repeated_claim_has_the_same_ranges() -> None:
    cursors = known(0, 100)
    for _ in range(FAIR_EVERY - 1):
        first(cursors, 1)
    for _ in range(2):
        assert cursors.ranges({1: None}, full=())[0].priority == 100
    assert [first(cursors, 1), first(cursors, 1)] == [100, 0]


def test_urgent_lanes_come_first_except_in_every_eighth_claim_when_all_others_take_turns() -> None:
    cursors = known(0, 1, 100)
    firsts = Counter(first(cursors, 1) for _ in range(4 * FAIR_EVERY))
    assert firsts == {0: 4 * (FAIR_EVERY - 1), 1: 2, 100: 2}


def test_less_urgent_lanes_come_first_at_each_endpoint_however_claims_alternate() -> None:
    cursors = known(0, 100)
    for priority in (0, 100):
        cursors.know(2, priority)
    firsts = Counter(
        (endpoint, first(cursors, endpoint)) for _ in range(2 * FAIR_EVERY) for endpoint in (1, 2)
    )
    assert firsts[1, 100] == firsts[2, 100] == 2


def test_time_between_full_scans_grows_with_their_duration() -> None:
    now = [100.0]
    timer = FullScanTimer(1.0, clock=lambda: now[0])
    assert timer.begin()
    now[0] += 0.5
    timer.done()
    now[0] += 9.9
    assert not timer.begin()
    now[0] += 0.1
    assert timer.begin()
    timer.done()
    now[0] += 1.0
    assert timer.begin()


def test_full_scan_that_waited_for_a_lock_delays_the_next_one_by_ten_seconds_at_most() -> None:
    now = [100.0]
    timer = FullScanTimer(1.0, clock=lambda: now[0])
    assert timer.begin()
    now[0] += 30
    timer.done()
    now[0] += 10
    assert timer.begin()
