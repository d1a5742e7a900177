"""Where a claim looks, and how the store goes through an outage."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from holdfast.dispatcher.delivery.store import session
from holdfast.dispatcher.delivery.store.scan_plan import (
    BEGINNING,
    END,
    FAIR_EVERY,
    FULL_SCAN_SECONDS_MAX,
    SLACK,
    FullScanTimer,
    Scan,
    ScanCursors,
    ScanPlan,
    ScanRange,
)
from holdfast.dispatcher.delivery.store.session import REFUSED_SECONDS, Outage
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.shared.errors import StoreRefusedError, StoreUnavailableError
from tests.support.waiting import Clock

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
FREE = Scan(free=True, full=frozenset(), unknown=[])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plan(clock: Clock) -> ScanPlan:
    return ScanPlan(clock=clock)


def claimed(plan: ScanPlan, *endpoint_ids: int, limited: tuple[int, ...] = ()) -> Scan:
    """Claim from endpoints with lanes of priority 0, of which some are limited; nothing is due."""
    scan = plan.next(endpoint_ids)
    plan.know((id_, 0) for id_ in scan.unknown)
    plan.limits(endpoint_ids, limited)
    plan.done(scan, {id_: None for id_ in endpoint_ids if id_ not in limited}, [])
    return scan


def test_first_claim_reads_limits_and_priorities_and_scans_everything(plan: ScanPlan) -> None:
    assert plan.next([1, 2]) == Scan(free=False, full=frozenset({1, 2}), unknown=[1, 2])


def test_claim_from_endpoints_without_a_limit_is_one_message(plan: ScanPlan) -> None:
    claimed(plan, 1, 2)
    assert plan.next([1, 2]) == FREE
    assert not plan.next([1, 3]).free


def test_endpoint_with_a_limit_has_its_limit_read_first_until_it_has_none(plan: ScanPlan) -> None:
    claimed(plan, 1, 2, limited=(2,))
    assert plan.is_free([1])
    assert not plan.is_free([1, 2])
    claimed(plan, 1, 2)
    assert plan.is_free([1, 2])


def test_priorities_of_an_endpoint_without_lanes_are_read_by_each_claim(plan: ScanPlan) -> None:
    plan.done(plan.next([1]), {1: None}, [])
    assert plan.next([1]).unknown == [1]
    assert plan.know([(1, 7)])
    assert not plan.know([(1, 7)])
    assert plan.next([1]).unknown == []


def test_endpoint_left_out_by_a_full_scan_gets_its_own_scan(plan: ScanPlan) -> None:
    claimed(plan, 1, 2, limited=(2,))
    assert plan.next([1, 2]).full == {2}
    claimed(plan, 1)
    assert plan.next([1, 2]).full == {2}


def test_scan_of_fresh_lanes_first_moves_no_cursor(plan: ScanPlan) -> None:
    claimed(plan, 1)
    plan.done(FREE, {1: NOON}, [(1, 0, NOON + timedelta(minutes=1))])
    assert plan.ranges(FREE, {1: NOON}) == [
        ScanRange(1, 0, NOON, END),
        ScanRange(1, 0, BEGINNING, NOON),
    ]


CLAIMS = st.lists(
    st.tuples(
        st.floats(0, 30),  # seconds since the last claim
        st.sets(st.sampled_from([1, 2, 3]), min_size=1),  # endpoints
        st.sets(st.sampled_from([1, 2, 3])),  # limited
        st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(-100, 100)), max_size=4),  # due
    ),
    max_size=30,
)


@given(CLAIMS)
def test_no_lane_stays_outside_every_scan_for_long(
    claims: list[tuple[float, set[int], set[int], list[tuple[int, int]]]],
) -> None:
    """Whatever was found before: an endpoint is scanned from the beginning in bounded time."""
    clock = Clock()
    plan = ScanPlan(clock=clock)
    scanned_at: dict[int, float] = {}
    for pause, endpoint_ids, limited, due in claims:
        clock.now += pause
        scan = plan.next(endpoint_ids)
        plan.know((id_, priority) for id_ in scan.unknown for priority in (0, 1))
        plan.limits(endpoint_ids, limited)
        fresh = dict.fromkeys(endpoint_ids - limited)
        ranges = plan.ranges(scan, fresh)
        for id_ in fresh:
            mine = [each for each in ranges if each.endpoint_id == id_]
            assert {each.priority for each in mine} == {0, 1}
            assert {each.due_to for each in mine} == {END}
            if clock.now - scanned_at.get(id_, -END.timestamp()) >= FULL_SCAN_SECONDS_MAX:
                assert {each.due_from for each in mine} == {BEGINNING}
            if {each.due_from for each in mine} == {BEGINNING}:
                scanned_at[id_] = clock.now
        results = [
            (id_, priority, NOON + timedelta(seconds=second))
            for id_ in fresh
            for priority, second in due
        ]
        plan.done(scan, fresh, results)
        if results:
            latest = max(at for *_, at in results)
            after = plan.ranges(FREE, fresh)
            assert any(each.due_from >= latest - SLACK for each in after)
        assert plan.is_free(endpoint_ids) == endpoint_ids.isdisjoint(limited)


LATER = NOON + timedelta(minutes=1)


def known(*priorities: int) -> ScanCursors:
    cursors = ScanCursors()
    for priority in priorities:
        cursors.know(1, priority)
    return cursors


def test_range_begins_where_the_last_claim_came_to() -> None:
    cursors = known(0)
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, BEGINNING, END)]
    cursors.move([(1, 0, NOON), (1, 0, LATER)], full=())
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, LATER - SLACK, END)]
    cursors.move([(1, 0, NOON)], full=())
    assert cursors.ranges({1: None}, full=()) == [ScanRange(1, 0, LATER - SLACK, END)]


def test_full_scan_begins_at_the_front_and_may_move_the_cursor_back() -> None:
    cursors = known(0)
    cursors.move([(1, 0, LATER)], full=())
    assert cursors.ranges({1: None}, full={1}) == [ScanRange(1, 0, BEGINNING, END)]
    cursors.move([(1, 0, NOON)], full={1})
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


def test_every_eighth_claim_serves_less_urgent_lanes_in_turn() -> None:
    cursors = known(0, 1, 100)
    firsts = Counter(first(cursors, 1) for _ in range(4 * FAIR_EVERY))
    assert firsts == {0: 4 * (FAIR_EVERY - 1), 1: 2, 100: 2}


def test_every_endpoint_gets_fair_turns_however_claims_alternate() -> None:
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


def test_lock_wait_delays_the_next_full_scan_by_ten_seconds_at_most() -> None:
    now = [100.0]
    timer = FullScanTimer(1.0, clock=lambda: now[0])
    assert timer.begin()
    now[0] += 30
    timer.done()
    now[0] += 10
    assert timer.begin()


@pytest.fixture
def outage_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    outage_clock = Clock()
    monkeypatch.setattr(session, "seconds", outage_clock)
    return outage_clock


def test_reads_between_refused_writes_do_not_end_the_outage(outage_clock: Clock) -> None:
    with capture_logs() as lines:
        outage = Outage(Telemetry())
        for _ in range(30):
            outage.away(StoreRefusedError("disk full"))
            outage.back()
            outage_clock.now += 1
            outage.back()
        outage_clock.now += REFUSED_SECONDS
        outage.back()
        outage.back()
    assert [line["event"] for line in lines] == ["store.away", "store.back"]
    assert lines[1]["seconds"] == 30 + REFUSED_SECONDS


def test_unresponsive_server_is_back_with_the_next_transaction(outage_clock: Clock) -> None:
    with capture_logs() as lines:
        outage = Outage(Telemetry())
        outage.away(StoreUnavailableError("no answer"))
        outage_clock.now += 1
        outage.back()
    assert [line["event"] for line in lines] == ["store.away", "store.back"]
    assert lines[1]["seconds"] == 1


def test_refusal_after_a_restart_is_reported(outage_clock: Clock) -> None:
    with capture_logs() as lines:
        outage = Outage(Telemetry())
        for error in ("terminating connection", "starting up"):
            outage.away(StoreUnavailableError(error))
        for _ in range(2):
            outage.away(StoreRefusedError("no transaction IDs"))
        outage_clock.now += REFUSED_SECONDS
        outage.back()
    reply = [(line["event"], line.get("error")) for line in lines]
    assert reply == [
        ("store.away", "terminating connection"),
        ("store.away", "no transaction IDs"),
        ("store.back", None),
    ]
