"""A replay's pace and its items, and why nothing is sent for now: in words, with the way out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.pace import DEBT_MAX, Allowance, why_held_up
from holdfast.dispatcher.delivery.rules.replays import (
    ReplayRate,
    ReplayTurn,
    affordable,
    allowed_for_replay,
    bounded,
    item_after,
    paid,
)
from holdfast.dispatcher.delivery.rules.values import Attempt, Entry, Lane
from holdfast.dispatcher.operators.replays.rules import drain_seconds, obstacles
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import OrderPolicy, Outcome

NOON = datetime(2025, 11, 3, 12, tzinfo=UTC)
ENDPOINT = Endpoint(1, "e", "http://e.example/", (), 1, 2, 64, (5, 30), OrderPolicy.STOP)


def lane(number: int = 1, steps: int = 0) -> Lane:
    """An item's lane: its entry had `number - 1` attempts, `steps` of them in this replay."""
    entry = Entry(7, number, UUID(int=1), NOON, None, b"{}", rescued=number - 1 - steps)
    return Lane(1, 2, UUID(int=3), 6, (entry,), 10.0)


def attempt(outcome: Outcome, number: int = 1) -> Attempt:
    status = 200 if outcome is Outcome.DELIVERED else 500
    return Attempt(7, number, UUID(int=1), outcome, status, 3, None, "said", None)


@pytest.mark.parametrize("rate", [1, 7, 50, 10_000])
def test_no_second_has_more_items_than_the_rate_and_its_burst(rate: int) -> None:
    at, until, taken = NOON, None, []
    for _ in range(400):
        count = affordable(ReplayRate(rate, until), 64, at)
        until = paid(ReplayRate(rate, until), count, at)
        taken.append((at, count))
        at += timedelta(milliseconds=17)
    for begin, _ in taken:
        end = begin + timedelta(seconds=1)
        assert sum(count for when, count in taken if begin <= when < end) <= rate * 1.1 + 1
    assert sum(count for _, count in taken) >= min(rate * 6, 64 * 300)


def test_replay_without_a_rate_is_never_charged() -> None:
    assert affordable(ReplayRate(None, None), 64, NOON) == 64
    assert paid(ReplayRate(None, None), 64, NOON) is None


def test_live_traffic_keeps_half_of_an_endpoints_bucket() -> None:
    assert allowed_for_replay(Allowance(0, 0)) == 0
    assert allowed_for_replay(Allowance(10, 1)) == 10
    assert allowed_for_replay(Allowance(1, 1, probe=True)) == 1
    assert [allowed_for_replay(Allowance(n, 1, rate=400.0)) for n in (20, 11, 10, 0)] == [
        10,
        1,
        0,
        0,
    ]
    assert allowed_for_replay(Allowance(1, 1, rate=1.0)) == 1


def test_drain_takes_as_long_as_the_slowest_rate_lets_it() -> None:
    assert drain_seconds({"a": 100, "b": 10}, {"a": 10, "b": None}, None) == 11.5
    assert drain_seconds({"a": 100, "b": 10}, {"a": 10, "b": None}, 5) == 22
    assert drain_seconds({"a": 100}, {"a": None}, None) is None


def test_delivered_item_is_settled() -> None:
    after = item_after(settle(lane(), [attempt(Outcome.DELIVERED)], ENDPOINT, draw=0.5))
    assert (after.outcome, after.settled, after.detail) == (Outcome.DELIVERED, True, None)
    assert (after.charged, after.delay_us) == (1, 0)


def test_schedule_of_an_item_restarts_and_ends_with_the_answer() -> None:
    waits = []
    for steps in range(3):
        number = 12 + steps
        tried = [attempt(Outcome.FAILED, number)]
        after = item_after(settle(lane(number, steps), tried, ENDPOINT, draw=0.5))
        waits.append((after.delay_us, after.charged, after.settled, after.detail))
    assert waits == [
        (5_000_000, 1, False, "answered 500: said"),
        (30_000_000, 1, False, "answered 500: said"),
        (0, 1, True, "answered 500: said"),
    ]


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.REFUSED])
def test_item_that_is_refused_is_settled_at_once(outcome: Outcome) -> None:
    after = item_after(settle(lane(), [attempt(outcome)], ENDPOINT, draw=0.5))
    assert (after.outcome, after.settled) == (outcome, True)


def test_item_of_an_endpoint_that_is_gone_waits_for_it() -> None:
    after = item_after(settle(lane(), [attempt(Outcome.GONE)], ENDPOINT, draw=0.5))
    assert (after.outcome, after.settled, after.charged) == (Outcome.GONE, False, 0)
    assert after.delay_us == 0


def test_item_that_was_not_sent_is_given_back() -> None:
    given_back = release(lane())
    after = item_after(given_back)
    assert given_back.move is Move.RELEASE
    assert (after.outcome, after.settled, after.charged, after.delay_us) == (None, False, 0, 0)


def test_deferred_item_uses_no_step_and_ends_with_its_budget() -> None:
    put_off = replace(attempt(Outcome.THROTTLED, 9), asked_seconds=1.0)
    after = item_after(settle(lane(9, steps=2), [put_off], ENDPOINT, draw=0.5))
    assert (after.charged, after.settled) == (0, False)
    long_tried = replace(lane(9, steps=2), tried_seconds=ENDPOINT.budget_seconds)
    after = item_after(settle(long_tried, [put_off], ENDPOINT, draw=0.5))
    assert (after.outcome, after.settled) == (Outcome.THROTTLED, True)


def test_item_whose_endpoint_is_refused_waits_for_it() -> None:
    refused = replace(attempt(Outcome.REFUSED), barred=True)
    after = item_after(settle(lane(), [refused], ENDPOINT, draw=0.5))
    assert (after.charged, after.settled) == (0, False)


def test_debt_of_a_clock_that_was_set_back_is_cut() -> None:
    for seconds, cut in ((1, 1), (DEBT_MAX.total_seconds(), DEBT_MAX.total_seconds()), (99, None)):
        rate = bounded(ReplayRate(5, NOON + timedelta(seconds=seconds)), NOON)
        assert rate.paid_until == NOON + (DEBT_MAX if cut is None else timedelta(seconds=cut))


@pytest.mark.parametrize(
    ("rate", "owed", "items"), [(50, 0.06, 2), (50, 0.0600001, 2), (50, 0.0604, 1), (1, 0.0, 1)]
)
def test_item_that_is_due_within_a_millionth_is_due(rate: int, owed: float, items: int) -> None:
    assert affordable(ReplayRate(rate, NOON + timedelta(seconds=owed)), 64, NOON) == items


def test_claim_of_nothing_was_held_back_by_no_rate() -> None:
    assert not ReplayTurn().paced


def test_move_that_settles_nothing_is_refused() -> None:
    settlement = settle(lane(), [attempt(Outcome.DELIVERED)], ENDPOINT, draw=0.5)
    for move in (Move.ROUTE, Move.RESCUE, Move.REDELIVER):
        with pytest.raises(ValueError, match="settles nothing"):
            item_after(replace(settlement, move=move))


def test_no_item_moves_the_rate_of_a_replay() -> None:
    assert paid(ReplayRate(5, None), 0, NOON) is None
    assert paid(ReplayRate(5, NOON), 5, NOON) == NOON + timedelta(seconds=1)


@given(rate=st.none() | st.integers(1, 10_000), ahead=st.floats(0, 1e6))
def test_replays_debt_waits_for_two_seconds_at_most(rate: int | None, ahead: float) -> None:
    stored = ReplayRate(rate, NOON + timedelta(seconds=ahead))
    assert affordable(bounded(stored, NOON), 64, NOON + timedelta(seconds=2)) >= 1
    fresh = ReplayRate(rate, paid(ReplayRate(rate, None), 64 if rate is None else 1, NOON))
    assert bounded(fresh, NOON) == fresh


NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
ROW: dict[str, Any] = {
    "name": "payouts",
    "state": "active",
    "state_reason": None,
    "breaker": "closed",
    "breaker_until": None,
    "breaker_reason": None,
    "held_until": None,
    "held_by": None,
}
OPEN = {"breaker": "open", "breaker_until": NOW, "breaker_reason": "HTTP 500"}
HELD = {"held_until": NOW, "held_by": "answered 429 with Retry-After"}
RESUME = "until `holdfast endpoint resume payouts --reason TEXT`"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "paused"}, f"it is paused {RESUME}"),
        ({"state": "paused", "state_reason": "their\n deploy"} | OPEN, f"(their deploy) {RESUME}"),
        ({"state": "disabled"}, f"it is disabled {RESUME}"),
        (
            {"state": "disabled", "state_reason": "answered 410"} | OPEN | HELD,
            f"it is disabled (answered 410) {RESUME}",
        ),
        (OPEN | HELD, "its breaker is open until 2026-11-02T12:00:00Z, after HTTP 500"),
        (HELD, "its receiver answered 429 with Retry-After: it is held until 2026-11-02T12:00:00Z"),
        (HELD | {"held_by": None}, "its receiver asked for time"),
    ],
)
def test_held_endpoint_says_until_when(change: dict[str, Any], message: str) -> None:
    assert message in why_held_up(ROW | change)


def test_obstacles_of_a_replay_name_what_ends_them() -> None:
    states = [{"endpoint": "eu", "endpoint_state": each} for each in ("paused", "disabled")]
    rows = [row | {"state_reason": "\x1b[2J"} for row in states]
    for row, obstacle in zip(rows, obstacles(rows), strict=True):
        assert f"endpoint eu is {row['endpoint_state']} (\\x1b[2J)" in obstacle
        assert obstacle.endswith("before `holdfast endpoint resume eu --reason TEXT`")
