"""Lanes that change while a statement looks at them, and lanes of which many versions are kept."""

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

import dispatcher.store
from dispatcher.core.lifecycle import LaneState
from dispatcher.core.values import Settled
from dispatcher.store.postgres import PostgresStore
from sink.contract.states import Outcome
from tests.integration.dispatcher.test_interleavings import claimed
from tests.integration.dispatcher.test_store import judged
from tests.support.decisions import Decisions
from tests.support.delivery import attempts, lanes, stored
from tests.support.dispatching import add_endpoint
from tests.support.waiting import eventually

URL = "http://127.0.0.1:1/"
SQL = Path(dispatcher.store.__file__).parent / "sql"
GATE = 20_261
# Whoever claims waits at the first lane, between its snapshot and its lock.
CLOSED = f"""
    SELECT pg_advisory_lock({GATE});
    ALTER TABLE holdfast.lane ENABLE ROW LEVEL SECURITY;
    CREATE POLICY gate ON holdfast.lane
        USING (current_query() NOT LIKE '%leased AS%'
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
RESCUED = "UPDATE holdfast.lane SET token = NULL, lease_until = NULL"
GIVEN: dict[str, Any] = {
    "endpoint_ids": [1],
    "subject_ids": [1],
    "tokens": [uuid4()],
    "delivered": [1],
    "attempts": [0],
    "rescued": [0],
    "delays_us": [None],
    "stopped": [False],
}
LANES = 60
VERSIONS = 100


async def waits(db: psycopg.Connection) -> None:
    await asyncio.to_thread(eventually, lambda: db.execute(WAITING).fetchone() == (1,))


def test_lane_that_changes_between_snapshot_and_lock_is_left_to_the_next_claim(
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
        first = await claiming
        found = lanes(db)
        # Nobody sends under a lease that is not there.
        assert [found[name].token is not None for name in ("m_1", "m_2")] == [False, True]
        assert [lane.token for lane in first] == [found["m_2"].token]
        assert found["m_1"].state is LaneState.DUE
        second = await claimed(store, endpoint_id)
        assert [lane.token for lane in second] == [lanes(db)["m_1"].token]
        results = [judged(lane, Outcome.DELIVERED) for lane in (*first, *second)]
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


def test_settlement_meets_the_newest_version_of_a_lane_first(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """An old snapshot keeps all of them, in as many pages; their number grows by the minute."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write(*(f"m_{n}" for n in range(LANES)))

    async def work(store: PostgresStore) -> None:
        await store.route(16)

    asyncio.run(stored(dsn, work))
    with psycopg.connect(dsn) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM holdfast.lane")
        for _ in range(VERSIONS):
            db.execute("UPDATE holdfast.lane SET due_at = clock_timestamp()")
        for statement in ("lane_hold", "lane_settle"):
            text = (SQL / f"{statement}.sql").read_text()
            assert pages(db, text.replace("DESC", "ASC"), endpoint_id) > VERSIONS / 2
            assert pages(db, text, endpoint_id) < VERSIONS / 10


def pages(db: psycopg.Connection, statement: str, endpoint_id: int) -> int:
    """Return how many pages a statement of one settlement reads on its way to the lane."""
    given = GIVEN | {"endpoint_ids": [endpoint_id], "subject_ids": [LANES // 2]}
    with db.transaction(force_rollback=True):
        db.execute((SQL / "session.sql").read_bytes(), {"plans": "auto"})
        explain = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) "
        rows = db.execute((explain + statement).encode(), given).fetchall()
    plan = "\n".join(line for (line,) in rows)
    found = re.search(r"using pk_lane.*?Buffers: shared hit=(\d+)", plan, re.DOTALL)
    assert found, plan
    return int(found[1])
