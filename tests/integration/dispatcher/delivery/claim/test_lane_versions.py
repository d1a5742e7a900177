"""Lanes that change while a statement looks at them, and lanes of which many versions are kept."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import holdfast.dispatcher.delivery.store
from holdfast.dispatcher.delivery.rules.values import Routed, Settled
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_ranges import BEGINNING, END
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.claim.test_interleavings import claimed
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.support.dispatch.delivery import attempts, lanes, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

URL = "http://127.0.0.1:1/"
SQL = Path(holdfast.dispatcher.delivery.store.__file__).parent / "sql"
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


def test_lane_that_changes_between_snapshot_and_lock_is_leased_as_it_is_by_then(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_2")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        # Beside the loop: a new connection may be in a transaction there that has read lanes.
        await asyncio.to_thread(db.execute, CLOSED)
        claiming = asyncio.create_task(claimed(store, endpoint_id))
        await waits(db)
        db.execute(CHANGE, ["m_1"])
        db.execute("SELECT pg_advisory_unlock(%s)", [GATE])
        leased = await claiming
        found = lanes(db)
        # Nobody sends under a lease that is not there.
        assert {found[name].token for name in ("m_1", "m_2")} == {lane.token for lane in leased}
        assert None not in {lane.token for lane in leased}
        assert await claimed(store, endpoint_id) == []
        results = [judged(lane, Outcome.DELIVERED) for lane in leased]
        assert len(await store.settle(results, repeated=False)) == 2

    asyncio.run(stored(dsn, work))
    assert sorted(row[:3] for row in attempts(db)) == [("m_1", 1, 1), ("m_2", 1, 1)]


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


def test_settlement_that_waited_for_routing_leaves_what_was_routed_due(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    decisions.write("m_1")
    (settled,) = settled_behind(ROUTED, dsn, db)
    assert settled.due_at is not None
    assert lanes(db)["m_1"] == (1, 2, 0, LaneState.DUE, None)


def test_settlement_that_waited_for_a_rescue_stores_nothing(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    decisions.write("m_1")
    assert settled_behind(RESCUED, dsn, db) == []
    assert lanes(db)["m_1"] == (0, 1, 1, LaneState.DUE, None)
    assert attempts(db) == []


def test_routing_that_waited_for_another_change_advances_the_lane_all_the_same(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        decisions.write("m_1", "m_2")
        with psycopg.connect(dsn) as other:
            other.execute(DELIVERED)
            routing = asyncio.create_task(store.route(16))
            await waits(db)
            other.commit()
            assert await routing == Routed(1, 2)
        assert await store.route(16) == Routed(0, 0)

    asyncio.run(stored(dsn, work))
    assert lanes(db) == {
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
def test_statement_of_one_lane_meets_its_newest_version_first(
    name: str, dsn: str, db: psycopg.Connection, routed: dict[str, Any]
) -> None:
    """An old snapshot keeps all of them, in as many pages; their number grows by the minute."""
    text = (SQL / f"{name}.sql").read_text()
    with every_version_kept(dsn, db, VERSION):
        assert pages(db, text.replace("DESC", "ASC"), routed, "using pk_lane") > VERSIONS / 2
        assert pages(db, text, routed, "using pk_lane") < VERSIONS / 10


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("settling/lane_settle", "Update on lane"),
        ("routing/lane_route", "Update on lane"),
        ("claiming/lane_claim", "CTE leased.*?Update on lane"),
    ],
)
@pytest.mark.parametrize(("change", "fewest", "most"), [(VERSION, 0, 40), (UNCOUNTED, 60, 999)])
def test_new_version_of_a_lane_passes_no_old_one_where_turns_are_counted(
    change: str,
    fewest: int,
    most: int,
    name: str,
    node: str,
    dsn: str,
    db: psycopg.Connection,
    routed: dict[str, Any],
) -> None:
    """A unique index looks at every version of its key, dead ones too, before it takes another."""
    text = (SQL / f"{name}.sql").read_text()
    if change == UNCOUNTED:
        text = text.replace("turn = lane.turn + 1", "turn = lane.turn")
    with every_version_kept(dsn, db, change):
        if name == "settling/lane_settle":
            db.execute("UPDATE holdfast.lane SET token = %s, lease_until = now()", routed["tokens"])
        if name == "routing/lane_route":
            db.execute("UPDATE holdfast.lane SET delivered_sequence = 1, due_at = NULL")
        assert fewest <= pages(db, text, routed, node) <= most


def pages(db: psycopg.Connection, statement: str, given: dict[str, Any], node: str) -> int:
    """Return how many pages a statement about one lane reads in a node of its plan."""
    with db.transaction(force_rollback=True):
        db.execute((SQL / "connection/session.sql").read_bytes(), {"plans": "auto"})
        if "holdfast.lanes" in statement:
            db.execute((SQL / "claiming/lane_due.sql").read_bytes(), given)
        explain = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) "
        rows = db.execute((explain + statement).encode(), given).fetchall()
    plan = "\n".join(line for (line,) in rows)
    found = re.search(f"{node}.*?Buffers: shared hit=(\\d+)", plan, re.DOTALL)
    assert found, plan
    return int(found[1])
