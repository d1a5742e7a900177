"""A new connection has read and planned the statements of every day before it is lent."""

import asyncio
import re
from pathlib import Path

import psycopg

import holdfast.dispatcher.delivery.store
from holdfast.dispatcher.delivery.store.messages import Plans, begin
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.warm import _CLAIM
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.store.test_store import judged, wanted
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions

SQL = Path(holdfast.dispatcher.delivery.store.__file__).parent / "sql"
NOT_WARM = {"claiming/lane_priorities", "routing/route_lock_shared"}
"""What is asked every second at most, and what may have to wait."""
ON_LANES = (
    "routing/lane_route_hold",
    "routing/lane_route",
    "claiming/lane_due",
    "claiming/lane_claim",
    "settling/lane_hold",
    "settling/lane_settle",
)
LANE_SCAN = re.compile(r"(?<!Subquery) Scan .*on lane(_key)?\b")
KEPT = """
    SELECT format('EXPLAIN EXECUTE %%I(%%s)', name, array_to_string(
               array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ', ')) AS explain
    FROM pg_prepared_statements WHERE starts_with(statement, %s)
"""


async def _prepared(connection: Connection) -> dict[str, int]:
    """How often each statement was planned for its parameters, by name."""
    names = {
        path.read_text(): str(path.relative_to(SQL).with_suffix("")) for path in SQL.rglob("*.sql")
    }
    cursor = await connection.execute(
        "SELECT statement, custom_plans FROM pg_prepared_statements", prepare=False
    )
    rows = {row["statement"]: row["custom_plans"] for row in await cursor.fetchall()}
    assert len(rows) == cursor.rowcount, "one statement, prepared for two kinds of parameters"
    # psycopg writes parameters in Postgres's way.
    first_lines = {text.split("\n", 1)[0]: name for text, name in names.items()}
    return {
        first_lines[text.split("\n", 1)[0]]: planned
        for text, planned in rows.items()
        if text.split("\n", 1)[0] in first_lines
    }


def test_delivery_prepares_nothing_on_a_connection_that_was_just_made(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, "http://127.0.0.1:1/")
    decisions.write("m_1", "m_2")

    async def work() -> None:
        store = PostgresStore(dsn, connections_max=1)
        await store.open()
        before = await store._sessions.transaction(_prepared)
        assert (await store.route(16)).lanes == 2
        lanes = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert len(lanes) == 2
        await store.settle([judged(lane, Outcome.DELIVERED) for lane in lanes], repeated=False)
        decisions.write("m_3")
        done = await store.route_and_claim(wanted(endpoint_id), 0)
        assert done is not None
        assert len(done[1].lanes) == 1
        after = await store._sessions.transaction(_prepared)
        assert after.keys() - before.keys() == NOT_WARM
        kept = after.keys() & before.keys() - {"connection/session"}
        assert {name: after[name] - before[name] for name in kept} == dict.fromkeys(kept, 0), (
            "planned for each decision"
        )
        assert {*ON_LANES, "claiming/pace_take"} <= kept
        await store.close()

    asyncio.run(work())


def test_plan_that_was_kept_from_an_empty_table_never_walks_over_all_lanes(
    dsn: str, db: psycopg.Connection
) -> None:
    """Until somebody analyzes the table, this is the plan for a million of them."""
    add_endpoint(db, "http://127.0.0.1:1/")
    for table in ("lane", "lane_key", "endpoint", "endpoint_pace"):
        db.execute(f"VACUUM (ANALYZE) holdfast.{table}".encode())

    async def work() -> None:
        store = PostgresStore(dsn, connections_max=1)
        await store.open()
        plans = await store._sessions.transaction(_kept_plans, begins=True)
        await store.close()
        for name, plan in plans.items():
            scans = [at for at, line in enumerate(plan) if LANE_SCAN.search(line)]
            assert scans, name
            for at in scans:
                assert re.search("(Index|TID) Cond", plan[at + 1]), "\n".join(plan)

    asyncio.run(work())


async def _kept_plans(connection: Connection) -> dict[str, list[str]]:
    """Return the plans by which a connection runs what it does with lanes, by statement."""
    await begin(connection, *_CLAIM[:1], plans=Plans.GENERIC)
    plans = {}
    for name in ON_LANES:
        first_line = (SQL / f"{name}.sql").read_text().split("\n", 1)[0]
        cursor = await connection.execute(KEPT, [first_line], prepare=False)
        (row,) = await cursor.fetchall()
        cursor = await connection.execute(row["explain"].encode(), prepare=False)
        plans[name] = [line["QUERY PLAN"] for line in await cursor.fetchall()]
    return plans
