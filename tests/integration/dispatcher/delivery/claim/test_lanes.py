"""A lane is there once, whoever makes it, and is leased as it is when a statement has its lock."""

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.values import Routed, Settled
from holdfast.dispatcher.delivery.store.messages import statement
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_plan import BEGINNING, END
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.shared.states import LaneState
from holdfast.migrations.upgrade import downgrade, upgrade
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.claim.test_interleavings import claimed
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.support.dispatch.delivery import lanes, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


URL = "http://127.0.0.1:1/"
GATE = 20_261
# Whoever claims waits at the first lane, between its snapshot and its lock.
CLOSED = f"""
    SELECT pg_advisory_lock({GATE});
    ALTER TABLE holdfast.lane ENABLE ROW LEVEL SECURITY;
    CREATE POLICY gate ON holdfast.lane
        USING (current_query() NOT LIKE '%locked.versions%'
               OR pg_advisory_xact_lock_shared({GATE})::text IS NOT NULL)
"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
CHANGE = """
    UPDATE holdfast.lane SET priority = priority
    WHERE subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""
ROUTED = "UPDATE holdfast.lane SET last_sequence = last_sequence + 1"
DELIVERED = """
    UPDATE holdfast.lane SET delivered_sequence = last_sequence, due_at = NULL, turn = turn + 1
"""
VERSION = "UPDATE holdfast.lane SET due_at = clock_timestamp(), turn = turn + 1"
UNCOUNTED = "UPDATE holdfast.lane SET due_at = clock_timestamp()"
RESCUED = "UPDATE holdfast.lane SET token = NULL, lease_until = NULL"
GIVEN: dict[str, Any] = {
    "endpoint_ids": [1],
    "subject_ids": [1],
    "tokens": [uuid4()],
    "delivered": [1],
    "attempts": [0],
    "rescued": [0],
    "delays_us": [None],
    "asked_us": [0],
    "stopped": [False],
}
CLAIM: dict[str, Any] = {
    "free": True,
    "lanes": [1],
    "entries": [1],
    "token": uuid4(),
    "lease_seconds": 30.0,
    "bytes": BODY_BYTES_MAX,
    "range_priorities": [0],
    "range_from": [BEGINNING],
    "range_to": [END],
}
LANES = 60
VERSIONS = 100


async def waits(db: psycopg.Connection) -> None:
    await asyncio.to_thread(eventually, lambda: db.execute(WAITING).fetchone() == (1,))


async def test_changed_lane_is_leased_as_it_is_by_then(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_2")
    # Beside the loop: a new connection may be in a transaction there that has read lanes.
    await asyncio.to_thread(world.db.execute, CLOSED)
    claiming = asyncio.create_task(claimed(store, endpoint_id))
    await waits(world.db)
    world.db.execute(CHANGE, ["m_1"])
    world.db.execute("SELECT pg_advisory_unlock(%s)", [GATE])
    leased = await claiming
    lanes_by_subject = world.lanes()
    # Nobody sends under a lease that is not there.
    assert {lanes_by_subject[name].token for name in ("m_1", "m_2")} == {
        lane.token for lane in leased
    }
    assert None not in {lane.token for lane in leased}
    assert await claimed(store, endpoint_id) == []
    results = [judged(lane, Outcome.DELIVERED) for lane in leased]
    assert len(await store.settle(results, repeated=False)) == 2
    assert sorted(row[:3] for row in world.attempts()) == [("m_1", 1, 1), ("m_2", 1, 1)]


def settled_behind(change: str, dsn: str, db: psycopg.Connection) -> list[Settled]:
    """Deliver the one lane, while somebody changes it and commits before the result is stored."""
    endpoint_id = add_endpoint(db, URL)
    settled: list[Settled] = []

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = await claimed(store, endpoint_id)
        with psycopg.connect(dsn) as other:
            other.execute(change.encode())
            settling = asyncio.create_task(
                store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
            )
            await waits(db)
            other.commit()
            settled.extend(await settling)

    asyncio.run(stored(dsn, work))
    return settled


def test_settlement_after_routing_leaves_routed_entries_due(world: World) -> None:
    world.write("m_1")
    (settled,) = settled_behind(ROUTED, world.dsn, world.db)
    assert settled.due_at is not None
    assert world.lanes()["m_1"] == (1, 2, 0, LaneState.DUE, None)


def test_settlement_that_waited_for_a_rescue_stores_nothing(world: World) -> None:
    world.write("m_1")
    assert settled_behind(RESCUED, world.dsn, world.db) == []
    assert world.lanes()["m_1"] == (0, 1, 1, LaneState.DUE, None)
    assert world.attempts() == []


async def test_routing_that_waited_advances_the_lane(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1")
    world.write("m_1", "m_2")
    with psycopg.connect(world.dsn) as other:
        other.execute(DELIVERED)
        routing = asyncio.create_task(store.route(16))
        await waits(world.db)
        other.commit()
        assert await routing == Routed(1, 2)
    assert await store.route(16) == Routed(0, 0)
    assert world.lanes() == {
        "m_1": (1, 2, 0, LaneState.DUE, None),
        "m_2": (0, 1, 0, LaneState.DUE, None),
    }


@contextmanager
def every_version_kept(dsn: str, db: psycopg.Connection, change: str) -> Iterator[None]:
    """Hold a snapshot from before many changes of all lanes."""
    with psycopg.connect(dsn) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM holdfast.lane")
        for _ in range(VERSIONS):
            db.execute(change.encode())
        yield


@pytest.fixture
def routed(dsn: str, db: psycopg.Connection, decisions: Decisions) -> dict[str, Any]:
    """Many lanes, and what statements need to know of one of them."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write(*(f"m_{n}" for n in range(LANES)))

    async def work(store: PostgresStore) -> None:
        await store.route(16)

    asyncio.run(stored(dsn, work))
    decisions.write("m_30")
    row = db.execute("SELECT max(batch_no), max(written_at) FROM holdfast.batch").fetchone()
    assert row is not None
    moments = {"first_written_at": row[1], "last_written_at": row[1], "past": END}
    batch = {"batch_nos": [row[0]], **moments}
    subject = db.execute("SELECT id FROM holdfast.subject WHERE name = 'm_30'").fetchone()
    assert subject is not None
    place = {"endpoint_ids": [endpoint_id], "subject_ids": [subject[0]]}
    return GIVEN | CLAIM | batch | place | {"range_endpoint_ids": [endpoint_id]}


@pytest.mark.parametrize(
    "name",
    ["settling/lane_hold", "settling/lane_settle", "routing/lane_route_hold", "routing/lane_route"],
)
def test_newest_lane_version_is_met_first(world: World, name: str, routed: dict[str, Any]) -> None:
    """An old snapshot keeps all of them, in as many pages; their number grows by the minute."""
    text = statement(name).decode()
    with every_version_kept(world.dsn, world.db, VERSION):
        assert pages(world.db, text.replace("DESC", "ASC"), routed, "using pk_lane") > VERSIONS / 2
        assert pages(world.db, text, routed, "using pk_lane") < VERSIONS / 10


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("settling/lane_settle", "Update on lane"),
        ("routing/lane_route", "Update on lane"),
        ("claiming/lane_claim", "CTE leased.*?Update on lane"),
    ],
)
@pytest.mark.parametrize(("change", "fewest", "most"), [(VERSION, 0, 40), (UNCOUNTED, 60, 999)])
def test_updated_lane_never_overtakes_where_turns_are_counted(
    world: World, change: str, fewest: int, most: int, name: str, node: str, routed: dict[str, Any]
) -> None:
    """A unique index looks at every version of its key, dead ones too, before it takes another."""
    text = statement(name).decode()
    if change == UNCOUNTED:
        text = text.replace("turn = lane.turn + 1", "turn = lane.turn")
    with every_version_kept(world.dsn, world.db, change):
        if name == "settling/lane_settle":
            world.db.execute(
                "UPDATE holdfast.lane SET token = %s, lease_until = now()", routed["tokens"]
            )
        if name == "routing/lane_route":
            world.db.execute("UPDATE holdfast.lane SET delivered_sequence = 1, due_at = NULL")
        assert fewest <= pages(world.db, text, routed, node) <= most


def pages(db: psycopg.Connection, text: str, values: dict[str, Any], node: str) -> int:
    """Return how many pages a statement about one lane reads in a node of its plan."""
    with db.transaction(force_rollback=True):
        db.execute(statement("connection/session"), {"plans": "auto"})
        if "holdfast.lanes" in text:
            db.execute(statement("claiming/lane_due"), values)
        explain = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) "
        rows = db.execute((explain + text).encode(), values).fetchall()
    plan = "\n".join(line for (line,) in rows)
    match = re.search(f"{node}.*?Buffers: shared hit=(\\d+)", plan, re.DOTALL)
    assert match, plan
    return int(match[1])


ONE = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at)
    VALUES (1, 1, 0, 1, 0, now())
"""
LANE = ONE + ", (1, 2, 0, 1, 0, now()), (1, 1, 0, 1, 0, now())"
PLACES = "SELECT endpoint_id, subject_id FROM holdfast.{} ORDER BY 1, 2"


def route_one(other: psycopg.Connection) -> None:
    """Route the oldest batch as another dispatcher, without the COMMIT."""

    def run(name: str, values: dict[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        return other.execute(statement(name), values)

    run("connection/session", {"plans": "auto"})
    [(number, _, at, *_)] = run("routing/batch_take", {"batches": 1}).fetchall()
    given = {"batch_nos": [number], "first_written_at": at, "last_written_at": at, "past": END}
    run("routing/lane_route", given)


async def route_beside_another(
    store: PostgresStore,
    dsn: str,
    db: psycopg.Connection,
    end: Callable[[psycopg.Connection], None] = psycopg.Connection.commit,
) -> Routed:
    """Route while another dispatcher has the oldest batch in hand, who ends when this one waits."""
    with psycopg.connect(dsn) as other:
        await asyncio.to_thread(route_one, other)
        routing = asyncio.create_task(store.route(16))
        await waits(db)
        assert "m_1" not in lanes(db)
        end(other)
        return await routing


async def route_all(store: PostgresStore) -> None:
    await store.route(16)


def places(db: psycopg.Connection, table: str) -> list[tuple[Any, ...]]:
    return db.execute(PLACES.format(table).encode()).fetchall()


@pytest.mark.parametrize("end", [psycopg.Connection.commit, psycopg.Connection.rollback])
async def test_concurrent_dispatchers_create_one_lane(
    world: World, store: PostgresStore, end: Callable[[psycopg.Connection], None]
) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1")
    world.write("m_1")
    assert await route_beside_another(store, world.dsn, world.db, end) == Routed(1, 1)
    assert world.lanes()["m_1"] == (0, 2, 0, LaneState.DUE, None)
    await store.route(16)
    assert world.lanes()["m_1"] == (0, 2, 0, LaneState.DUE, None)
    for _ in range(2):
        (lane,) = await claimed(store, endpoint_id, entries=1)
        assert await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    assert sorted(row[:3] for row in world.attempts()) == [("m_1", 1, 1), ("m_1", 2, 1)]
    assert places(world.db, "lane") == places(world.db, "lane_key") == [(endpoint_id, 1)]


def test_lane_that_is_inserted_again_is_left_as_it_is(db: psycopg.Connection) -> None:
    add_endpoint(db, URL)
    assert db.execute(LANE).rowcount == 2
    db.execute("UPDATE holdfast.lane SET delivered_sequence = 1, turn = turn + 1")
    assert db.execute(LANE).rowcount == 0
    assert places(db, "lane") == places(db, "lane_key") == [(1, 1), (1, 2)]


def test_lane_that_was_deleted_may_begin_again(db: psycopg.Connection) -> None:
    add_endpoint(db, URL)
    db.execute(LANE)
    db.execute("DELETE FROM holdfast.lane WHERE subject_id = 1")
    assert places(db, "lane") == places(db, "lane_key") == [(1, 2)]
    assert db.execute(LANE).rowcount == 1
    db.execute("TRUNCATE holdfast.lane")
    assert places(db, "lane_key") == []
    db.execute(LANE)
    db.execute("TRUNCATE holdfast.lane, holdfast.lane_key")
    assert places(db, "lane_key") == []
    assert db.execute(LANE).rowcount == 2


async def test_key_without_a_lane_lets_it_begin(world: World, store: PostgresStore) -> None:
    """As after a restore of one table before the other; two dispatchers may meet it at once."""
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1")
    world.write("m_1", "m_2")
    world.db.execute("INSERT INTO holdfast.lane_key SELECT 1, id FROM holdfast.subject")
    assert await route_beside_another(store, world.dsn, world.db) == Routed(1, 2)
    assert {name: row[:2] for name, row in world.lanes().items()} == {"m_1": (0, 2), "m_2": (0, 1)}
    assert (
        places(world.db, "lane")
        == places(world.db, "lane_key")
        == [(endpoint_id, 1), (endpoint_id, 2)]
    )


def test_lane_created_while_the_upgrade_waits_gets_its_key(world: World) -> None:
    world.add_endpoint(URL)
    downgrade(world.dsn, "0021")
    with psycopg.connect(world.dsn) as router, ThreadPoolExecutor(1) as pool:
        router.execute(ONE)
        upgrading = pool.submit(upgrade, world.dsn)
        eventually(lambda: world.db.execute(WAITING).fetchone() == (1,))
        router.commit()
        upgrading.result()
    assert places(world.db, "lane") == places(world.db, "lane_key") == [(1, 1)]


def test_concurrent_backfill_and_routing_lock_in_one_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing has the lane of m_1 and wants to make that of m_2, which the backfill has made."""
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1")
    asyncio.run(stored(world.dsn, route_all))
    world.write("m_1", "m_2")
    with Endpoints.connect(world.dsn) as operator, ThreadPoolExecutor(1) as pool:
        run, routing = operator._run, []

        def watched(name: str, value: Row | None = None) -> psycopg.Cursor[Row]:
            done = run(name, value)
            if name == "endpoints/backfill_add":
                routing.append(pool.submit(asyncio.run, stored(world.dsn, route_all)))
                eventually(lambda: world.db.execute(WAITING).fetchone() == (1,))
            return done

        monkeypatch.setattr(operator, "_run", watched)
        operator.backfill("payouts")
        routing[0].result()
    assert {name: row[:2] for name, row in world.lanes().items()} == {"m_1": (0, 2), "m_2": (0, 1)}
    assert (
        places(world.db, "lane")
        == places(world.db, "lane_key")
        == [(endpoint_id, 1), (endpoint_id, 2)]
    )
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert world.db.execute(deadlocks).fetchone() == (0,)


def test_lanes_survive_the_upgrade_and_the_way_back(world: World) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1", "m_2", "m_2")

    async def first(store: PostgresStore) -> None:
        await store.route(16)
        for lane in await claimed(store, endpoint_id, entries=1):
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)

    async def rest(store: PostgresStore) -> None:
        assert await store.route(16) == Routed(1, 2)
        for lane in await claimed(store, endpoint_id):
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)

    asyncio.run(stored(world.dsn, first))
    before = world.lanes()
    downgrade(world.dsn, "0021")
    assert world.lanes() == before
    upgrade(world.dsn)
    assert world.lanes() == before
    assert (
        places(world.db, "lane")
        == places(world.db, "lane_key")
        == [(endpoint_id, 1), (endpoint_id, 2)]
    )
    world.write("m_1", "m_3")
    asyncio.run(stored(world.dsn, rest))
    reached = {name: row[:2] for name, row in world.lanes().items()}
    assert reached == {"m_1": (2, 2), "m_2": (2, 2), "m_3": (1, 1)}
