"""The budget of an entry: running time, which stands still while nothing may be sent."""

from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.values import Attempt, Lane, Settlement, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import DeadReason, OrderPolicy, Outcome
from tests.support.dispatch.delivery import make_due
from tests.support.world import World

URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (5,) * 1000, OrderPolicy.STOP, budget_seconds=3600)


def let_time_pass(db: psycopg.Connection, span: str) -> None:
    """Move every moment that the running clock is made of into the past; lanes are due then."""
    make_due(db)
    db.execute(
        "UPDATE holdfast.lane SET tried_since_us = tried_since_us"
        " - extract(epoch FROM %(span)s::interval) * 1000000",
        {"span": span},
    )
    db.execute(
        "UPDATE holdfast.endpoint_pace SET stalled_since = stalled_since - %(span)s::interval,"
        " stalled_until = stalled_until - %(span)s::interval,"
        " held_until = held_until - %(span)s::interval,"
        " breaker_since = breaker_since - %(span)s::interval,"
        " breaker_until = breaker_until - %(span)s::interval",
        {"span": span},
    )


async def claim(store: PostgresStore, entries: int = 1) -> Lane:
    (lane,) = (await store.claim(Wanted({1: 1}, uuid4(), 30, entries), 0)).lanes
    return lane


def failing(
    lane: Lane, outcome: Outcome = Outcome.FAILED, asked: float | None = None
) -> Settlement:
    head = lane.entries[0]
    tried = Attempt(
        head.sequence, head.number, head.key, outcome, None, 3, "reset", None, None, asked
    )
    return settle(lane, [tried], ENDPOINT, draw=0.5)


async def test_entry_is_dead_after_its_budget(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=0)
    for _ in range(2):
        result = failing(await claim(store))
        assert result.move is Move.RETRY
        await store.settle([result], repeated=False)
        let_time_pass(world.db, "29 min")
    let_time_pass(world.db, "3 min")
    result = failing(await claim(store))
    assert result.dead is not None
    assert (result.dead.reason, result.dead.attempts) == (DeadReason.EXHAUSTED, 3)


async def test_next_entry_has_a_budget_of_its_own(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", "m_1", breaker_threshold=0)
    await store.settle([failing(await claim(store))], repeated=False)
    let_time_pass(world.db, "59 min")
    lane = await claim(store, entries=2)
    outcomes = (Outcome.DELIVERED, Outcome.FAILED)
    tried = [
        Attempt(entry.sequence, entry.number, entry.key, outcome, None, 3, *[None] * 3)
        for entry, outcome in zip(lane.entries, outcomes, strict=True)
    ]
    tried[0] = replace(tried[0], status=200)
    await store.settle([settle(lane, tried, ENDPOINT, draw=0.5)], repeated=False)
    let_time_pass(world.db, "59 min")
    result = failing(await claim(store))
    assert result.move is Move.RETRY
    await store.settle([result], repeated=False)
    let_time_pass(world.db, "2 min")
    assert failing(await claim(store)).dead is not None


@pytest.mark.guarantee(9)
async def test_days_of_open_breaker_bury_nothing(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=1)
    for _ in range(10):
        result = failing(await claim(store))
        assert result.move is Move.RETRY
        await store.settle([result], repeated=False)
        let_time_pass(world.db, "1 day")


@pytest.mark.guarantee(9)
async def test_retry_after_uses_budget_of_one_entry_only(
    world: World, store: PostgresStore
) -> None:
    """A receiver that puts one entry off for ever ends that, and costs the others nothing."""
    await world.routed(store, "m_put_off", "m_waits", breaker_threshold=0)
    (put_off, waits) = (await store.claim(Wanted({1: 2}, uuid4(), 30, 1), 0)).lanes
    await store.settle([failing(waits)], repeated=False)
    result = failing(put_off, Outcome.THROTTLED, asked=1200.0)
    for _ in range(3):
        assert result.move is Move.RETRY
        await store.settle([result], repeated=False)
        let_time_pass(world.db, "20 min")
        lanes = (await store.claim(Wanted({1: 2}, uuid4(), 30, 1), 0)).lanes
        (put_off,) = [each for each in lanes if each.subject_id == put_off.subject_id]
        (waits,) = [each for each in lanes if each.subject_id != put_off.subject_id]
        assert waits.tried_seconds < 60
        await store.settle([release(waits)], repeated=False)
        result = failing(put_off, Outcome.THROTTLED, asked=1200.0)
    assert result.dead is not None
    assert (result.dead.reason, result.dead.attempts) == (DeadReason.EXHAUSTED, 4)


@pytest.mark.guarantee(9)
async def test_paused_and_disabled_use_no_budget(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=0)
    for state in ("paused", "disabled"):
        await store.settle([failing(await claim(store))], repeated=False)
        world.db.execute(f"UPDATE holdfast.endpoint SET state = '{state}'".encode())
        let_time_pass(world.db, "3 days")
        world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
        world.make_due()
        lane = await claim(store)
        assert 0 <= lane.tried_seconds < 60
        await store.settle([failing(lane)], repeated=False)
        world.make_due()
    let_time_pass(world.db, "2 h")
    assert failing(await claim(store)).dead is not None


async def test_crashes_before_an_answer_use_no_budget(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=0)
    for _ in range(3):
        await claim(store)
        world.expire_leases()
        await store.rescue(16)
        let_time_pass(world.db, "1 h")
    assert failing(await claim(store)).move is Move.RETRY
