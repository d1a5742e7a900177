"""The breaker of an endpoint on a real database: one for all dispatchers, one probe at a time."""

import asyncio
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Lane, Settled, Settlement, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import BreakerState, OrderPolicy, Outcome
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import stored
from tests.support.waiting import eventually
from tests.support.world import World

URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (0,) * 20, OrderPolicy.STOP)


def wanted(endpoint_id: int, count: int = 100, entries: int = 8) -> Wanted:
    return Wanted({endpoint_id: count}, uuid4(), 30, entries)


def judged(lane: Lane, outcome: Outcome) -> Settlement:
    head = lane.entries[0]
    status = 200 if outcome is Outcome.DELIVERED else None
    tried = Attempt(head.sequence, head.number, head.key, outcome, status, 3, "reset", None, None)
    return settle(lane, [tried], ENDPOINT, draw=0.5)


async def turn(store: PostgresStore, lanes: list[Lane], outcome: Outcome) -> list[Settled]:
    return await store.settle([judged(lane, outcome) for lane in lanes], repeated=False)


def breaker(db: psycopg.Connection) -> tuple[str, int]:
    (row,) = db.execute("SELECT breaker::text, openings FROM holdfast.endpoint_pace")
    return row


def let_time_pass(db: psycopg.Connection, span: str) -> None:
    """Move everything that an endpoint's pace waits for into the past."""
    db.execute(
        "UPDATE holdfast.endpoint_pace SET breaker_until = breaker_until - %(span)s::interval,"
        " breaker_since = breaker_since - %(span)s::interval,"
        " held_until = held_until - %(span)s::interval,"
        " stalled_since = stalled_since - %(span)s::interval,"
        " stalled_until = stalled_until - %(span)s::interval,"
        " paid_until = paid_until - %(span)s::interval",
        {"span": span},
    )


async def opened(store: PostgresStore, endpoint_id: int) -> None:
    """Route what there is, then let three lanes fail."""
    await store.route(16)
    claim = await store.claim(wanted(endpoint_id, 3), 0)
    settled = await turn(store, list(claim.lanes), Outcome.FAILED)
    (change,) = [each.paced for each in settled if each.paced is not None]
    assert (change.before, change.breaker) == (BreakerState.CLOSED, BreakerState.OPEN)


async def test_open_breaker_is_open_for_all(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    before = world.lanes()

    async def elsewhere(other: PostgresStore) -> None:
        for each in (store, other):
            claim = await each.claim(wanted(endpoint_id), 0)
            assert (claim.lanes, claim.held) == ([], (endpoint_id,))

    await stored(world.dsn, elsewhere)
    assert world.lanes() == before
    assert not await store.is_pending([endpoint_id])
    assert breaker(world.db)[0] == BreakerState.OPEN


async def test_one_probe_for_many_concurrent_claims(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)), *(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    world.make_due()
    claims = await asyncio.gather(*(store.claim(wanted(endpoint_id), 0) for _ in range(5)))
    (probe,) = [lane for claim in claims for lane in claim.lanes]
    assert len(probe.entries) == 1
    assert breaker(world.db) == ("half_open", 1)
    await turn(store, [probe], Outcome.FAILED)
    assert breaker(world.db) == ("open", 2)
    let_time_pass(world.db, "5 s")
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
    let_time_pass(world.db, "10 s")
    assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1


async def test_dead_prober_blocks_no_longer_than_its_lease(
    world: World, store: PostgresStore
) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    (dead,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
    let_time_pass(world.db, "31 s")
    world.expire_leases()
    assert len(await store.rescue(16)) == 1
    (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await turn(store, [dead], Outcome.FAILED)
    assert breaker(world.db) == ("half_open", 1)
    await turn(store, [probe], Outcome.DELIVERED)
    assert breaker(world.db) == ("slow_start", 1)


async def test_released_probe_makes_room_at_once(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await store.settle([release(probe)], repeated=False)
    assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1
    assert len(world.attempts()) == 3


async def test_slow_start_interleaves_new_and_backlog(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"old_{n}" for n in range(50)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await turn(store, [probe], Outcome.DELIVERED)
    world.write("new_1", "new_2", "new_3")
    await store.route(16)
    first = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert 1 <= sum(len(lane.entries) for lane in first) <= 2
    seen = set(first)
    for _ in range(4):
        let_time_pass(world.db, "1 s")
        claim = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert sum(len(lane.entries) for lane in claim) <= 4
        seen |= set(claim)
    names = dict(world.db.execute("SELECT id, name FROM holdfast.subject").fetchall())
    kinds = {names[lane.subject_id].partition("_")[0] for lane in seen}
    assert kinds == {"old", "new"}
    let_time_pass(world.db, "60 s")
    assert (await store.claim(wanted(endpoint_id, 4), 0)).closed == (endpoint_id,)
    assert breaker(world.db) == ("closed", 0)


@pytest.mark.rest
def test_receiver_that_was_down_gets_everything(world: World) -> None:
    """Not one failure more than its breaker allows, except requests already in flight."""
    threshold, concurrency = 5, 2
    world.add_endpoint(
        world.receiver.url,
        breaker_threshold=threshold,
        slow_start_seconds=1,
        schedule_seconds=[1] * 10,
    )
    world.write(*(f"m_{n}" for n in range(200)))
    world.receiver.script = lambda _seen: webhooks.answer(503)
    with world.dispatching("--concurrency", str(concurrency)) as process:
        process.says("breaker.opened")
        seen = len(world.receiver.seen)
        _state, openings = breaker(world.db)
        world.receiver.script = lambda _seen: webhooks.answer(200)
        eventually(lambda: breaker(world.db) == ("closed", 0))
        eventually(lambda: all(lane.delivered == 1 for lane in world.lanes().values()))
        assert process.lines("breaker.recovering")
    probes = openings  # where this test was late: each but the first opening is a failed probe
    assert threshold <= seen <= threshold + concurrency - 1 + probes


@pytest.mark.rest
@pytest.mark.parametrize(("status", "threshold"), [(401, 3), (403, 0)])
def test_receiver_that_refuses_our_secret_buries_no_entry(
    world: World, status: int, threshold: int
) -> None:
    """The first failures open the breaker, then one probe at a time goes out, even for weeks."""
    world.add_endpoint(world.receiver.url, breaker_threshold=threshold, slow_start_seconds=0)
    world.write(*(f"m_{n}" for n in range(40)))
    world.receiver.script = lambda _seen: webhooks.answer(status)
    world.drain()
    assert breaker(world.db) == ("open", 1)
    for opening in (2, 3, 4):
        let_time_pass(world.db, "30 days")
        world.make_due()
        world.drain()
        assert breaker(world.db) == ("open", opening)
    assert world.db.execute("SELECT count(*) FROM holdfast.dead_letter").fetchone() == (0,)
    with Overview.connect(world.dsn) as overview:
        needs = {need["kind"]: need for need in overview.needs()}
    assert needs.keys() == {"no_dispatcher", "credentials_refused"}
    assert needs["credentials_refused"]["command"] == "holdfast endpoint test payouts"
    world.receiver.script = lambda _seen: webhooks.answer(200)
    let_time_pass(world.db, "30 days")
    world.make_due()
    report = world.drain()
    assert report.counts == {"delivered": 40}
