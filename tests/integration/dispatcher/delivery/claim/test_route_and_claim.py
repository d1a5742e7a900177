"""Routing and claiming in one transaction: what comes while nothing else is under way."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.values import ClaimRequest, Gap
from holdfast.dispatcher.delivery.store.messages import run
from holdfast.dispatcher.delivery.store.pacing import pace_step
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.routing import (
    FEW_BATCHES_MAX,
    FEW_LANES_MAX,
    lock_few_batches,
)
from holdfast.dispatcher.shared.states import LaneState
from tests.support.dispatch.delivery import LaneRow, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.world import World

pytestmark = pytest.mark.rest


URL = "http://127.0.0.1:1/"
ROUTED = "SELECT count(*) FROM holdfast.batch WHERE routed_at IS NOT NULL"
TRANSACTIONS = """
    SELECT DISTINCT xmin FROM holdfast.lane WHERE token IS NOT NULL
    UNION SELECT xmin FROM holdfast.batch WHERE batch_no = %s
"""
LOCKED_LANE = "SELECT FROM holdfast.lane FOR UPDATE"
LOCKED_PACE = "SELECT FROM holdfast.endpoint_pace FOR UPDATE"
Change = Callable[[psycopg.Connection, int], None]
LOCKED_ROUTES = "SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))"


@pytest.fixture
def endpoint_id(db: psycopg.Connection) -> int:
    return add_endpoint(db, URL, breaker_threshold=1)


def wanted(endpoint_id: int, count: int = 100) -> ClaimRequest:
    return ClaimRequest({endpoint_id: count}, uuid4(), 30, 8)


async def learn(
    store: PostgresStore, decisions: Decisions, endpoint_id: int, subject: str = "known"
) -> None:
    """Let the store find out that the endpoint is sent to freely, and where its lanes are."""
    decisions.write(subject)
    await store.route(16)
    assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1


def both(*endpoint_ids: int) -> ClaimRequest:
    return ClaimRequest(dict.fromkeys(endpoint_ids, 9), uuid4(), 30, 8)


async def learn_both(store: PostgresStore, decisions: Decisions, *endpoint_ids: int) -> None:
    """Do as `learn` for two endpoints."""
    decisions.write("known")
    await store.route(16)
    assert len((await store.claim(both(*endpoint_ids), 0)).lanes) == 2


def routed(db: psycopg.Connection) -> int:
    (row,) = db.execute(ROUTED)
    return int(row[0])


@pytest.mark.parametrize("count", [3, 500], ids=["kept plans", "a plan of its own"])
async def test_small_batch_is_routed_and_leased_in_one_transaction(
    world: World, store: PostgresStore, endpoint_id: int, count: int
) -> None:
    names = [f"m_{n}" for n in range(count)]
    await learn(store, world.decisions, endpoint_id)
    world.db.execute("DELETE FROM holdfast.lane_key")
    world.db.execute("DELETE FROM holdfast.lane")
    batch_no = world.write(*names).batch_no
    done = await store.route_and_claim(wanted(endpoint_id, count), 0)
    assert done is not None
    assert (done[0].batches, done[0].lanes, len(done[1].lanes)) == (1, count, count)
    assert [lane.entries[0].sequence for lane in done[1].lanes] == [1] * count
    assert {lane.state for lane in world.lanes().values()} == {LaneState.LEASED}
    assert len(world.db.execute(TRANSACTIONS, [batch_no]).fetchall()) == 1


async def test_lease_waits_for_the_disk_as_every_other_claim(
    world: World, store: PostgresStore, endpoint_id: int
) -> None:
    """A COMMIT of routing alone does not."""
    world.write("m_1")

    async def settings(connection: Connection) -> None:
        _, few = await lock_few_batches(connection, pace_step([endpoint_id], free_too=False))
        assert few is not None
        for name, parameters in (*few.before, few.route, *few.after):
            await run(connection, name, parameters)
        cursor = await connection.execute("SHOW synchronous_commit")
        assert await cursor.fetchall() == [{"synchronous_commit": "on"}]
        await run(connection, "routing/route_patience")
        cursor = await connection.execute("SHOW synchronous_commit")
        assert await cursor.fetchall() == [{"synchronous_commit": "off"}]

    await store._sessions.transaction(settings, begins=True)


def limited(db: psycopg.Connection, endpoint_id: int) -> None:
    db.execute("UPDATE holdfast.endpoint SET rate_per_second = 1000 WHERE id = %s", [endpoint_id])


def opened(db: psycopg.Connection, endpoint_id: int) -> None:
    db.execute(
        "UPDATE holdfast.endpoint_pace SET breaker = 'open',"
        " breaker_until = now() + interval '1 hour', breaker_since = now()"
        " WHERE endpoint_id = %s",
        [endpoint_id],
    )


def held(db: psycopg.Connection, endpoint_id: int) -> None:
    db.execute(
        "UPDATE holdfast.endpoint_pace SET held_until = now() + interval '1 hour'"
        " WHERE endpoint_id = %s",
        [endpoint_id],
    )


@pytest.mark.parametrize("change", [limited, opened, held])
async def test_limited_endpoint_is_left_to_an_ordinary_claim(
    world: World, store: PostgresStore, endpoint_id: int, change: Change
) -> None:
    await learn(store, world.decisions, endpoint_id)
    world.write("m_1")
    change(world.db, endpoint_id)
    before = world.lanes(), routed(world.db)
    assert await store.route_and_claim(wanted(endpoint_id), 0) is None
    assert await store.route_and_claim(wanted(endpoint_id), 0) is None
    assert (world.lanes(), routed(world.db)) == before
    await store.route(16)
    claim = await store.claim(wanted(endpoint_id), 0)
    assert len(claim.lanes) == (change is limited)


@pytest.mark.parametrize("change", [limited, opened, held])
async def test_claim_in_one_message_skips_a_newly_limited_endpoint(
    world: World, store: PostgresStore, endpoint_id: int, change: Change
) -> None:
    other = world.add_endpoint(URL, name="other")
    await learn_both(store, world.decisions, endpoint_id, other)
    world.write("m_1")
    await store.route(16)
    change(world.db, endpoint_id)
    claim = await store.claim(both(endpoint_id, other), 0)
    assert [lane.endpoint_id for lane in claim.lanes] == [other]
    later = await store.claim(both(endpoint_id, other), 0)
    assert (later.held == (endpoint_id,)) is (change is not limited)
    assert [lane.endpoint_id for lane in later.lanes] == [endpoint_id] * (change is limited)


@contextmanager
def locked(dsn: str, statement: str) -> Iterator[None]:
    with psycopg.connect(dsn) as holder:
        holder.execute(statement.encode())
        yield
        holder.rollback()


async def test_nobody_is_waited_for(world: World, store: PostgresStore, endpoint_id: int) -> None:
    """Not an endpoint that is being added, and not whoever changes a lane or a pace."""
    await learn(store, world.decisions, endpoint_id)
    world.write("known", "m_1")
    before = world.lanes(), routed(world.db)
    for statement in (LOCKED_LANE, LOCKED_ROUTES):
        with locked(world.dsn, statement):
            async with asyncio.timeout(2):
                assert await store.route_and_claim(wanted(endpoint_id), 0) is None
        assert (world.lanes(), routed(world.db)) == before
    done = await store.route_and_claim(wanted(endpoint_id), 0)
    assert done is not None
    assert (done[0].batches, len(done[1].lanes)) == (1, 1), "one of the lanes is leased"
    held(world.db, endpoint_id)
    world.write("m_2")
    with locked(world.dsn, LOCKED_PACE):
        async with asyncio.timeout(2):
            assert await store.route_and_claim(wanted(endpoint_id), 0) is None


async def test_many_batches_and_large_ones_are_left_to_routing(
    world: World, store: PostgresStore, endpoint_id: int
) -> None:
    await learn(store, world.decisions, endpoint_id)
    for _ in range(FEW_BATCHES_MAX + 1):
        world.write("m_1")
    assert await store.route_and_claim(wanted(endpoint_id), 0) is None
    assert routed(world.db) == 1
    await store.route(256)
    world.write(*(f"m_{n}" for n in range(FEW_LANES_MAX + 1)))
    assert await store.route_and_claim(wanted(endpoint_id), 0) is None
    assert (await store.route(256)).batches == 1
    for n in range(4):
        world.add_endpoint(URL, name=f"other_{n}")
    world.write(*(f"m_{n}" for n in range(FEW_LANES_MAX // 5 + 1)))
    assert await store.route_and_claim(wanted(endpoint_id), 0) is None, "a lane for each"
    assert (await store.route(256)).batches == 1
    assert await store.route_and_claim(wanted(endpoint_id), 0) is None, "there is none"


async def test_claim_reports_a_lane_whose_next_entry_is_missing(
    world: World, store: PostgresStore, endpoint_id: int
) -> None:
    await learn(store, world.decisions, endpoint_id)
    world.write("m_1", "m_1", "m_2")
    world.db.execute(
        "DELETE FROM holdfast.entry e USING holdfast.subject s"
        " WHERE s.id = e.subject_id AND s.name = 'm_1' AND e.sequence = 1"
    )
    await store.route(16)
    world.db.execute("UPDATE holdfast.lane SET delivered_sequence = 0 WHERE token IS NULL")
    first = await store.claim(wanted(endpoint_id), 0)
    (subject,) = world.db.execute("SELECT id FROM holdfast.subject WHERE name = 'm_1'")
    gap = [Gap(endpoint_id, subject[0], 0, 2)]
    assert (len(first.lanes), first.gaps) == (1, gap)
    second = await store.claim(wanted(endpoint_id), 0)
    assert (second.lanes, second.gaps) == ([], []), "it is due again a minute later"
    world.make_due()
    again = await store.claim(wanted(endpoint_id), 0)
    assert (again.lanes, again.gaps) == ([], gap)


async def test_concurrent_announcements_lease_each_lane_once(
    world: World, store: PostgresStore, endpoint_id: int
) -> None:
    async def beside(other: PostgresStore) -> None:
        await learn(store, world.decisions, endpoint_id)
        await learn(other, world.decisions, endpoint_id, "known too")
        taken: list[int] = []
        for turn in range(20):
            world.write(*(f"m_{turn}_{n}" for n in range(5)))
            both = [each.route_and_claim(wanted(endpoint_id), 0) for each in (store, other)]
            for done in await asyncio.gather(*both):
                taken += [lane.subject_id for lane in done[1].lanes] if done else []
        assert len(taken) == len(set(taken)) == 100

    await stored(world.dsn, beside)
    assert all(
        LaneRow(0, 1, 1, LaneState.LEASED, row.token) == row for row in world.lanes().values()
    )


def test_first_lane_of_a_priority_needs_no_full_scan(world: World, endpoint_id: int) -> None:
    """A block after nothing but releases: it is what must not wait."""

    def urgent() -> None:
        written = world.write("m_1")
        world.db.execute(
            "UPDATE holdfast.entry SET priority = 1 WHERE batch_no = %s", [written.batch_no]
        )

    async def routed_first(store: PostgresStore) -> None:
        await learn(store, world.decisions, endpoint_id)
        urgent()
        await store.route(16)
        assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1

    async def at_once(store: PostgresStore) -> None:
        await learn(store, world.decisions, endpoint_id, "known too")
        world.db.execute(
            "UPDATE holdfast.lane SET delivered_sequence = last_sequence, token = NULL,"
            " lease_until = NULL, due_at = NULL"
        )
        urgent()
        done = await store.route_and_claim(wanted(endpoint_id), 0)
        assert done is not None
        results = [*done[1].lanes, *(await store.claim(wanted(endpoint_id), 0)).lanes]
        assert len(results) == 1

    asyncio.run(stored(world.dsn, routed_first))
    asyncio.run(stored(world.dsn, at_once))


@pytest.mark.parametrize("at_once", [False, True])
async def test_block_of_a_waiting_lane_is_in_the_scan_of_urgent_ones(
    world: World, store: PostgresStore, endpoint_id: int, at_once: bool
) -> None:
    """The lane has been due for longer than claims of urgent ones look back."""

    def write(subject: str, priority: int) -> None:
        batch_no = world.write(subject).batch_no
        world.db.execute(
            "UPDATE holdfast.entry SET priority = %s WHERE batch_no = %s", [priority, batch_no]
        )

    write("released", 50)
    write("other", 50)
    await store.route(16)
    world.db.execute("UPDATE holdfast.lane SET due_at = now() - interval '1 hour'")
    write("blocked", 1)
    await store.route(16)
    assert len((await store.claim(wanted(endpoint_id, 1), 0)).lanes) == 1
    write("released", 1)
    if at_once:
        done = await store.route_and_claim(wanted(endpoint_id, 1), 0)
        assert done is not None
        leased = done[1].lanes
    else:
        await store.route(16)
        leased = (await store.claim(wanted(endpoint_id, 1), 0)).lanes
    states = {name: row.state for name, row in world.lanes().items()}
    assert len(leased) == 1
    assert states["released"] is LaneState.LEASED
    assert states["other"] is LaneState.DUE


async def test_missing_entry_of_a_busy_endpoint_blocks_no_other_claim(
    world: World, store: PostgresStore, endpoint_id: int
) -> None:
    other = world.add_endpoint(URL, name="other")
    await learn_both(store, world.decisions, endpoint_id, other)
    world.write("m_1", "m_1")
    await store.route(16)
    world.db.execute(
        "UPDATE holdfast.lane SET delivered_sequence = 1 WHERE endpoint_id = %s AND token IS NULL",
        [other],
    )
    world.db.execute("DELETE FROM holdfast.entry WHERE sequence = 1")
    claim = await store.claim(both(endpoint_id, other), 0)
    assert (len(claim.lanes), len(claim.gaps)) == (1, 1)
    async with asyncio.timeout(5):
        assert (await store.claim(wanted(other), 0)).gaps == []
