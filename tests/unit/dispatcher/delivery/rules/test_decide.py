"""What becomes of a lane after its turn; the states and moves of a lane and a breaker."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.delivery.rules import breaker, lifecycle
from holdfast.dispatcher.delivery.rules.breaker import JITTER, OPEN_SECONDS_MAX, Event, open_seconds
from holdfast.dispatcher.delivery.rules.decide import detail_of, release, settle
from holdfast.dispatcher.delivery.rules.lease import fits, lease_seconds_for, may_send
from holdfast.dispatcher.delivery.rules.lifecycle import Move, state_of
from holdfast.dispatcher.delivery.rules.schedule import (
    RETRY_AFTER_SECONDS_MAX,
    free_delay_us,
    retry_delay_us,
)
from holdfast.dispatcher.delivery.rules.values import Attempt, Entry, Lane
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import BreakerState, DeadReason, OrderPolicy, Outcome
from tests.support.documents.pages import ROOT

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
ENDPOINT = Endpoint(
    id=1,
    name="payouts",
    url="https://payouts.example/",
    allowed=(),
    connect_timeout=5,
    total_timeout=30,
    concurrency=64,
    schedule_seconds=(5, 30),
    order_policy=OrderPolicy.STOP,
)


def lane(*numbers: int) -> Lane:
    """A lane that delivered up to sequence 10 and claimed one entry for each attempt number."""
    entries = tuple(
        Entry(11 + place, number, uuid4(), NOW, None, b"{}") for place, number in enumerate(numbers)
    )
    return Lane(1, 7, UUID(int=1), 10, entries, trusted_until=100.0)


def tried(given: Lane, *outcomes: Outcome, status: int | None = None) -> list[Attempt]:
    return [
        Attempt(entry.sequence, entry.number, entry.key, outcome, status, 3, None, None, None)
        for entry, outcome in zip(given.entries, outcomes, strict=False)
    ]


def test_lane_of_which_nothing_was_sent_is_charged_nothing() -> None:
    given = lane(3, 1)
    settlement = release(given)
    assert settlement.move is Move.RELEASE
    assert (settlement.delivered_sequence, settlement.attempt) == (10, 2)
    assert settle(given, [], ENDPOINT, draw=0.5) == settlement


@pytest.mark.parametrize("settle_until", [None, 120.0])
def test_settlement_is_of_its_lane_and_token(settle_until: float | None) -> None:
    given = replace(lane(3, 1), settle_until=settle_until)
    for settlement in (
        release(given),
        settle(given, tried(given, Outcome.FAILED), ENDPOINT, draw=0.5),
    ):
        ids = (settlement.endpoint_id, settlement.subject_id, settlement.token)
        assert ids == (given.endpoint_id, given.subject_id, given.token)
        assert settlement.trusted_until == (settle_until or given.trusted_until)
        assert settlement.unsent == 2 - len(settlement.attempts)
    assert release(replace(given, entries=())).attempt == 0


def test_finished_lane_continues_behind_them() -> None:
    given = lane(3, 1)
    settlement = settle(
        given, tried(given, Outcome.DELIVERED, Outcome.DELIVERED), ENDPOINT, draw=0.5
    )
    assert settlement.move is Move.ADVANCE
    assert (settlement.delivered_sequence, settlement.attempt) == (12, 0)
    assert settlement.rescued == 0


def test_claimed_but_unreached_entry_keeps_its_attempts() -> None:
    given = lane(1, 4, 1)
    settlement = settle(given, tried(given, Outcome.DELIVERED), ENDPOINT, draw=0.5)
    assert (settlement.delivered_sequence, settlement.attempt) == (11, 3)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.THROTTLED, Outcome.UNKNOWN])
def test_lane_waits_behind_an_entry_that_is_tried_again(outcome: Outcome) -> None:
    given = lane(1, 2, 1)
    settlement = settle(given, tried(given, Outcome.DELIVERED, outcome), ENDPOINT, draw=0.5)
    assert settlement.move is Move.RETRY
    assert (settlement.delivered_sequence, settlement.attempt) == (11, 2)
    assert settlement.delay_us == 30_000_000


@pytest.mark.parametrize(
    ("outcome", "number", "reason"),
    [
        (Outcome.REJECTED, 1, DeadReason.REJECTED),
        (Outcome.REFUSED, 1, DeadReason.REFUSED),
        (Outcome.FAILED, 3, DeadReason.EXHAUSTED),
        (Outcome.UNKNOWN, 3, DeadReason.EXHAUSTED),
        (Outcome.THROTTLED, 3, DeadReason.EXHAUSTED),
    ],
)
@pytest.mark.parametrize("policy", OrderPolicy)
def test_dead_entry_stops_its_lane_or_is_passed_over(
    outcome: Outcome, number: int, reason: DeadReason, policy: OrderPolicy
) -> None:
    given = lane(number, 1)
    endpoint = replace(ENDPOINT, order_policy=policy)
    settlement = settle(given, tried(given, outcome, status=400), endpoint, draw=0.5)
    assert settlement.dead is not None
    assert (settlement.dead.sequence, settlement.dead.reason) == (11, reason)
    assert settlement.dead.key == given.entries[0].key
    assert settlement.dead.created_at == NOW
    assert settlement.dead.attempts == number
    assert settlement.delay_us is None
    if policy is OrderPolicy.STOP:
        assert settlement.move is Move.BURY
        assert (settlement.delivered_sequence, settlement.attempt) == (10, number)
    else:
        assert settlement.move is Move.SKIP
        assert (settlement.delivered_sequence, settlement.attempt) == (11, 0)


def test_gone_disables_the_endpoint_and_gives_nothing_up() -> None:
    given = lane(9)
    settlement = settle(given, tried(given, Outcome.GONE, status=410), ENDPOINT, draw=0.5)
    assert settlement.move is Move.KEEP
    assert settlement.disable is not None
    assert settlement.dead is None
    assert (settlement.delivered_sequence, settlement.attempt) == (10, 9)


WAYS = {
    "throttled": {"outcome": Outcome.THROTTLED, "status": 429, "asked_seconds": 1.0},
    "unavailable": {"outcome": Outcome.THROTTLED, "status": 503, "asked_seconds": 7.0},
    "too_many": {"outcome": Outcome.THROTTLED, "status": 429},
    "at_once": {"outcome": Outcome.THROTTLED, "status": 429, "asked_seconds": 0.0},
    "failed": {"outcome": Outcome.FAILED, "status": 500},
    "unknown": {"outcome": Outcome.UNKNOWN},
}
INSTRUCTIONS = {"throttled": 4, "unavailable": 7}
"""Outcomes that are not failures, with the seconds until the next attempt: soon or Retry-After."""


@given(ways=st.lists(st.sampled_from([*WAYS, "rescued"]), max_size=40))
def test_only_failures_use_up_the_schedule(ways: list[str]) -> None:
    schedule = (5, 30, 120, 600)
    endpoint = replace(ENDPOINT, schedule_seconds=schedule)
    failures = attempts = rescued = 0
    for way in ways:
        attempts += 1
        if way == "rescued":  # as `lane_rescue` counts it
            rescued += 1
            continue
        given = lane(attempts)
        given = replace(given, entries=(replace(given.entries[0], rescued=rescued),))
        (plain,) = tried(given, Outcome.FAILED)
        settlement = settle(given, [replace(plain, **WAYS[way])], endpoint, draw=0.0)
        failures += way not in INSTRUCTIONS
        if failures > len(schedule):
            assert settlement.dead is not None
            return
        assert (settlement.move, settlement.attempt) == (Move.RETRY, attempts)
        if way in INSTRUCTIONS:
            assert settlement.delay_us == INSTRUCTIONS[way] * 1_000_000
        else:
            assert settlement.delay_us == schedule[failures - 1] * 0.8 * 1_000_000
        rescued = settlement.rescued
    assert attempts - rescued == failures


@pytest.mark.parametrize(
    ("outcome", "asked", "delay", "asked_us"),
    [
        (Outcome.THROTTLED, 7.0, 7, 7_000_000),
        (Outcome.THROTTLED, 1e9, 86400, 86400_000_000),
        (Outcome.THROTTLED, 0.0, 30, 0),
        (Outcome.FAILED, 600.0, 600, 0),
        (Outcome.FAILED, None, 30, 0),
    ],
)
def test_instruction_to_wait_counts_towards_the_budget(
    outcome: Outcome, asked: float | None, delay: int, asked_us: int
) -> None:
    given = lane(2)
    (last,) = tried(given, outcome, status=503)
    endpoint = replace(ENDPOINT, schedule_seconds=(5, 30), budget_seconds=10**9)
    settlement = settle(given, [replace(last, asked_seconds=asked)], endpoint, draw=0.0)
    assert settlement.delay_us == (delay if asked else delay * 0.8) * 1_000_000
    assert settlement.asked_us == asked_us


def test_running_request_is_retried_soon() -> None:
    given = lane(2)
    settlement = settle(given, tried(given, Outcome.FAILED, status=409), ENDPOINT, draw=0.5)
    assert settlement.delay_us == 5_000_000


def test_rescued_attempts_of_the_last_entry_take_no_step() -> None:
    given = lane(1, 3)
    given = replace(given, entries=(given.entries[0], replace(given.entries[1], rescued=2)))
    attempts = tried(given, Outcome.DELIVERED, Outcome.FAILED)
    assert settle(given, attempts, ENDPOINT, draw=0.5).delay_us == 5_000_000


@pytest.mark.parametrize(
    ("schedule", "number", "seconds"),
    [((), 1, 5), ((5, 30), 1, 5), ((5, 30), 9, 30), ((7200,), 1, 300)],
)
def test_refused_secret_takes_no_step_and_ends_with_the_budget(
    schedule: tuple[int, ...], number: int, seconds: int
) -> None:
    given, endpoint = lane(number), replace(ENDPOINT, schedule_seconds=schedule)
    refused = tried(given, Outcome.FAILED, status=401)
    settlement = settle(given, refused, endpoint, draw=0.5)
    assert (settlement.move, settlement.delay_us) == (Move.RETRY, seconds * 1_000_000)
    assert (settlement.attempt, settlement.rescued) == (number, 1)
    given = replace(given, tried_seconds=endpoint.budget_seconds)
    dead = settle(given, refused, endpoint, draw=0.5).dead
    assert dead is not None
    assert (dead.reason, dead.detail) == (DeadReason.EXHAUSTED, "answered 401")


def test_deferred_entry_is_dead_when_its_budget_ends() -> None:
    given = replace(lane(900), tried_seconds=ENDPOINT.budget_seconds)
    (last,) = tried(given, Outcome.THROTTLED, status=503)
    settlement = settle(given, [replace(last, asked_seconds=1.0)], ENDPOINT, draw=0.5)
    assert settlement.dead is not None
    assert settlement.dead.reason is DeadReason.EXHAUSTED


@pytest.mark.parametrize(("duration_ms", "is_dead"), [(2999, False), (3000, True)])
def test_budget_counts_the_attempt_itself(duration_ms: int, is_dead: bool) -> None:
    endpoint = replace(ENDPOINT, budget_seconds=100)
    given = replace(lane(1, 1), tried_seconds=97.0)
    (last,) = tried(given, Outcome.FAILED)
    last = replace(last, duration_ms=duration_ms)
    assert (settle(given, [last], endpoint, draw=0.5).dead is not None) is is_dead


def test_budget_of_the_head_is_not_that_of_the_next_entry() -> None:
    given = replace(lane(1, 1), tried_seconds=1000.0)
    attempts = tried(given, Outcome.DELIVERED, Outcome.FAILED)
    endpoint = replace(ENDPOINT, budget_seconds=1)
    assert settle(given, attempts, endpoint, draw=0.5).move is Move.RETRY


def test_refused_address_waits_and_gives_nothing_up() -> None:
    given = lane(9)
    (last,) = tried(given, Outcome.REFUSED)
    settlement = settle(given, [replace(last, barred=True)], ENDPOINT, draw=0.5)
    assert (settlement.move, settlement.delay_us) == (Move.RETRY, 5_000_000)


@pytest.mark.parametrize(
    ("status", "error", "response", "detail"),
    [
        (None, None, None, "no answer"),
        (None, "reset", None, "no answer: reset"),
        (500, None, "busy", "answered 500: busy"),
        (500, "cut", "busy", "answered 500: cut"),
        (500, "x" * 2000, None, f"answered 500: {'x' * 986}"),
    ],
)
def test_detail_has_the_answer_and_its_cause(
    status: int | None, error: str | None, response: str | None, detail: str
) -> None:
    (last,) = tried(lane(1), Outcome.FAILED, status=status)
    assert detail_of(replace(last, error=error, response=response)) == detail


SCHEDULE = (5, 30, 120)
SECOND = 1_000_000


def test_each_attempt_waits_for_its_step_and_the_last_has_none() -> None:
    delays = [retry_delay_us(SCHEDULE, number, draw=0.5) for number in (1, 2, 3, 4)]
    assert delays == [5 * SECOND, 30 * SECOND, 120 * SECOND, None]


@given(
    schedule=st.lists(st.integers(0, 7 * 86400), min_size=1, max_size=32),
    number=st.integers(1, 40),
    draw=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.floats(0, 1e12),
    conflict=st.booleans(),
)
def test_delay_is_within_its_bounds(
    schedule: list[int], number: int, draw: float, asked: float | None, conflict: bool
) -> None:
    delay = retry_delay_us(schedule, number, draw=draw, asked_seconds=asked, conflict=conflict)
    if number > len(schedule):
        assert delay is None
        return
    assert delay is not None
    step = schedule[number - 1]
    longest = max(step * 1.2, min(asked or 0, RETRY_AFTER_SECONDS_MAX) * 1.1)
    assert (0 if conflict else round(step * 0.8 * SECOND)) <= delay <= longest * SECOND + 1


def test_receiver_may_ask_for_more_time_but_not_for_less() -> None:
    assert retry_delay_us(SCHEDULE, 1, draw=0, asked_seconds=600) == 600 * SECOND
    assert retry_delay_us(SCHEDULE, 2, draw=0.5, asked_seconds=0) == 30 * SECOND
    assert retry_delay_us(SCHEDULE, 1, draw=0, asked_seconds=1e9) == 86400 * SECOND


@pytest.mark.parametrize(("schedule", "seconds"), [((2, 30), 2), ((60, 3), 5), ((), 5)])
def test_delay_without_a_step_is_the_first_if_shorter(
    schedule: tuple[int, ...], seconds: int
) -> None:
    assert free_delay_us(schedule, draw=0.5) == seconds * SECOND


def test_time_that_was_asked_for_is_spread_behind_it() -> None:
    delay = free_delay_us(SCHEDULE, draw=0.5, asked_seconds=100)
    assert delay == pytest.approx(105 * SECOND)


@pytest.mark.parametrize(("number", "seconds"), [(1, 5), (2, 5), (3, 5), (4, 600)])
def test_running_request_is_asked_again_soon_but_not_for_ever(number: int, seconds: int) -> None:
    schedule = (5, 30, 120, 600)
    assert retry_delay_us(schedule, number, draw=0.5, conflict=True) == seconds * SECOND


def test_lease_has_room_for_the_slowest_endpoint() -> None:
    assert lease_seconds_for([2.0, 40.0]) == 45
    assert lease_seconds_for([]) == 35
    assert fits(35, 30)
    assert not fits(31, 30)


def test_nothing_is_sent_that_could_outlive_its_lease() -> None:
    assert may_send(now=100, trusted_until=131, total_timeout=30)
    assert not may_send(now=100.5, trusted_until=131, total_timeout=30)


LANE = {
    (state.value, target.value, move.value)
    for (state, move), targets in lifecycle.TRANSITIONS.items()
    for target in targets
}
BREAKER = {(s.value, to.value, event.value) for (s, event), to in breaker.TRANSITIONS.items()}


@pytest.mark.parametrize(
    ("heading", "table", "states", "moves"),
    [("## Lanes", LANE, LaneState, Move), ("### Breaker", BREAKER, BreakerState, Event)],
)
def test_diagram_in_the_docs_is_the_table_and_uses_every_state_and_move(
    heading: str, table: set[tuple[str, str, str]], states: type[str], moves: type[str]
) -> None:
    page = (ROOT / "docs" / "delivery.md").read_text()
    section = page.partition(heading)[2].partition("\n## ")[0]
    drawn = re.findall(r"^ +(\w+) --> (\w+): (\w+)$", section, re.MULTILINE)
    assert sorted(drawn) == sorted(table)
    assert {to for _, to, _ in table} == {each.value for each in states}
    assert {move for _, _, move in table} == {each.value for each in moves}


def test_only_a_leased_lane_can_be_settled() -> None:
    by_hand = {Move.REDELIVER, Move.DISMISS, Move.GO_ON}
    settling = set(Move) - {Move.ROUTE, Move.CLAIM, Move.EMPTY, Move.GAP} - by_hand
    for state in set(LaneState) - {LaneState.LEASED}:
        for move in settling:
            with pytest.raises(lifecycle.IllegalMoveError):
                lifecycle.after(state, move)
    assert {move for move in settling if lifecycle.stops(move)} == {Move.BURY}


def test_state_follows_from_the_row() -> None:
    now = datetime.now(UTC)
    assert state_of(uuid4(), now, 1, 2) is LaneState.LEASED
    assert state_of(None, now, 1, 2) is LaneState.DUE
    assert state_of(None, None, 2, 2) is LaneState.IDLE
    assert state_of(None, None, 1, 2) is LaneState.STOPPED


def test_open_breaker_lets_nothing_but_a_probe_out() -> None:
    assert {event for state, _, event in BREAKER if state == BreakerState.OPEN} == {Event.PROBE}
    with pytest.raises(breaker.IllegalEventError, match="a breaker that is open cannot warm"):
        breaker.after(BreakerState.OPEN, Event.WARM)


def test_breaker_stays_open_twice_as_long_each_time_up_to_five_minutes() -> None:
    spans = [open_seconds(opening, draw=0.5) for opening in range(1, 9)]
    assert spans == [5, 10, 20, 40, 80, 160, 300, 300]
    assert open_seconds(10**6, draw=0.999) <= OPEN_SECONDS_MAX * (1 + JITTER)
    assert open_seconds(1, draw=0.0) == pytest.approx(5 * (1 - JITTER))
