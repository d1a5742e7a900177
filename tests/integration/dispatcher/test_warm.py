"""A new connection has read and planned the statements of every day before it is lent."""

import asyncio
from pathlib import Path

import psycopg

import dispatcher.store
from dispatcher.store.pool import Connection
from dispatcher.store.postgres import PostgresStore
from sink.contract.states import Outcome
from tests.integration.dispatcher.test_store import judged, wanted
from tests.support.decisions import Decisions
from tests.support.dispatching import add_endpoint

SQL = Path(dispatcher.store.__file__).parent / "sql"
NOT_WARM = {"lane_priorities", "route_lock_shared"}
"""What is asked every second at most, and what may have to wait."""


async def _prepared(connection: Connection) -> dict[str, int]:
    """How often each statement was planned for its parameters, by name."""
    names = {path.read_text(): path.stem for path in SQL.glob("*.sql")}
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
        after = await store._sessions.transaction(_prepared)
        assert after.keys() - before.keys() == NOT_WARM
        kept = after.keys() & before.keys() - {"session"}
        assert {name: after[name] - before[name] for name in kept} == dict.fromkeys(kept, 0), (
            "planned for each decision"
        )
        assert {"lane_route", "lane_claim", "lane_settle", "pace_take"} <= kept
        await store.close()

    asyncio.run(work())
