"""Lanes claimed before a hold was known, or before the results that cause it are stored."""

from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Entry, Lane, Settlement
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import OrderPolicy, Outcome

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
ENDPOINT = Endpoint(1, "e", "https://x/", (), 1, 2, 64, (5,), OrderPolicy.STOP, breaker_threshold=3)


def lane(endpoint_id: int, claimed_at: float) -> Lane:
    return Lane(endpoint_id, 1, UUID(int=1), 0, (), 100.0, claimed_at=claimed_at)


def test_lanes_claimed_before_a_hold_are_not_begun_and_later_ones_are() -> None:
    holds = Holds(clock=lambda: 50.0)
    assert holds.allow(lane(1, 0.0))
    holds.mark_held([1])
    assert not holds.allow(lane(1, 49.0))
    assert not holds.allow(lane(1, 50.0))
    assert holds.allow(lane(1, 50.1))
    assert holds.allow(lane(2, 49.0))


def attempt(outcome: Outcome, *, asked: int | None = None, ours: bool = False) -> Attempt:
    return Attempt(1, 1, UUID(int=7), outcome, 503, 1, None, None, None, asked, ours)


def result(*attempts: Attempt) -> Settlement:
    entries = tuple(Entry(1, 1, UUID(int=7), NOW, None, b"{}") for _ in attempts)
    return settle(replace(lane(1, 0.0), entries=entries), attempts, ENDPOINT, draw=0.5)


FAILURE = result(attempt(Outcome.FAILED))
ANSWERS = (
    result(attempt(Outcome.DELIVERED)),
    result(attempt(Outcome.REJECTED)),
)


def after(*settlements: Settlement, endpoint: Endpoint = ENDPOINT) -> Holds:
    holds = Holds()
    for settlement in settlements:
        holds.tried(settlement, endpoint)
    return holds


def test_as_many_failures_as_open_the_breaker_wait_for_the_database_to_know_of_them() -> None:
    holds = after(FAILURE, FAILURE)
    assert holds.allow(lane(1, 1.0))
    holds.stored(FAILURE)
    holds.tried(FAILURE, ENDPOINT)
    assert not holds.allow(lane(1, 1.0))
    assert holds.allow(lane(2, 1.0))
    assert holds.will_hold(1)
    assert not holds.stored(FAILURE)
    assert not holds.allow(lane(1, 1.0)), "the third one is not stored"
    assert holds.stored(FAILURE)
    assert not holds.will_hold(1)
    assert holds.allow(lane(1, 1.0)), "the database has the say"
    holds.tried(FAILURE, ENDPOINT)
    assert holds.allow(lane(1, 1.0)), "it did not open: failures count from 0"


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_in_between_ends_a_row_of_failures(answer: Settlement) -> None:
    holds = after(FAILURE, FAILURE, answer, FAILURE, FAILURE)
    assert holds.allow(lane(1, 1.0))
    holds.tried(FAILURE, ENDPOINT)
    assert not holds.allow(lane(1, 1.0))


def test_what_a_lane_delivered_before_it_failed_ends_the_row_too() -> None:
    later = result(attempt(Outcome.DELIVERED), attempt(Outcome.FAILED))
    assert after(FAILURE, FAILURE, later).allow(lane(1, 1.0))


def test_faults_of_ours_and_breakers_that_never_open_hold_nothing() -> None:
    ours = result(attempt(Outcome.FAILED, ours=True))
    assert after(FAILURE, FAILURE, ours).allow(lane(1, 1.0))
    never = replace(ENDPOINT, breaker_threshold=0)
    assert after(*[FAILURE] * 20, endpoint=never).allow(lane(1, 1.0))


@pytest.mark.parametrize(
    "last", [attempt(Outcome.THROTTLED, asked=30), attempt(Outcome.GONE)], ids=["429", "410"]
)
def test_receiver_that_asks_for_time_is_left_alone_at_once(last: Attempt) -> None:
    asking = result(last)
    holds = after(asking)
    assert not holds.allow(lane(1, 1.0))
    holds.stored(asking)
    assert holds.allow(lane(1, 1.0)), "the database has the say"


def test_throttled_without_a_time_is_one_failure() -> None:
    assert after(result(attempt(Outcome.THROTTLED))).allow(lane(1, 1.0))


@given(st.lists(st.sampled_from([FAILURE, *ANSWERS, None]), max_size=40))
def test_nothing_is_held_once_everything_is_stored(
    story: list[Settlement | None],
) -> None:
    """None: the first of what is under way is stored."""
    holds, under_way = Holds(), deque[Settlement]()
    for each in story:
        if each is not None:
            holds.tried(each, ENDPOINT)
            under_way.append(each)
        elif under_way:
            holds.stored(under_way.popleft())
    for each in under_way:
        holds.stored(each)
    assert holds.allow(lane(1, 1.0))
