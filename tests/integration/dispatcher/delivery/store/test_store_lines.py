"""Lines to the database on a bad day: a table is locked, preparing does not end, a session dies."""

import asyncio
import logging

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.values import Routed
from holdfast.dispatcher.delivery.store import session
from holdfast.dispatcher.delivery.store.messages import run
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.session import Sessions
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

SAID = "terminating connection|закрытие подключения"
"""What a server of the tests says to a session that an administrator ends."""

OURS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-dispatcher'"""


def test_table_that_is_locked_keeps_no_connection_from_those_who_do_not_need_it(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """VACUUM FULL of the attempts stops claiming and settling, and not routing."""
    add_endpoint(db, "http://127.0.0.1:1/")
    decisions.write("m_1")

    async def work() -> None:
        store = PostgresStore(dsn, connections_max=1)
        await store.open()
        try:
            # It waits for a connection three seconds at most.
            assert await store.route(16) == Routed(1, 1)
        finally:
            await store.close()

    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE holdfast.attempt")
        asyncio.run(work())


def test_connection_that_does_not_become_ready_is_closed_and_another_one_is_made(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TRANSACTION_SECONDS", 0.3)
    stuck: list[int] = []

    async def warm(connection: Connection) -> None:
        if not stuck:
            stuck.append(connection.info.backend_pid)
            await connection.execute("SELECT pg_sleep(20)")

    async def work() -> None:
        sessions = Sessions(dsn, None, connections_max=1, warm=warm)
        await sessions.open()
        try:
            (row,) = await sessions.rows("connection/backend")
            assert row["pid"] not in stuck
            assert db.execute(OURS).fetchall() == [(row["pid"],)]
        finally:
            await sessions.close()

    asyncio.run(work())
    assert stuck


def test_line_that_breaks_is_told_in_the_error_and_nowhere_else(
    dsn: str,
    db: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a library says would stand between the lines of JSON of the dispatcher's log."""

    async def pid(connection: Connection) -> int:
        (row,) = await run(connection, "connection/backend")
        found: int = row["pid"]
        return found

    async def work() -> None:
        sessions = Sessions(dsn, None, connections_max=1)
        await sessions.open()
        try:
            dead = await sessions.transaction(pid)
            db.execute("SELECT pg_terminate_backend(%s)", [dead])
            eventually(lambda: (dead,) not in db.execute(OURS).fetchall())
            with pytest.raises(session.StoreUnavailableError, match=SAID):
                await sessions.transaction(pid)
            assert await sessions.transaction(pid) != dead
        finally:
            await sessions.close()

    # As in the dispatcher's process, which does not configure the logs of libraries.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    asyncio.run(work())
    assert capsys.readouterr().err == ""


def test_table_that_is_changed_under_a_prepared_statement_is_an_outage_that_ends(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, "http://127.0.0.1:1/")

    async def work() -> None:
        store = PostgresStore(dsn, connections_max=1)
        await store.open()
        try:
            assert await store.route(16) == Routed(0, 0)
            db.execute("ALTER TABLE holdfast.batch ALTER entry_count TYPE integer")
            decisions.write("m_1")
            with pytest.raises(StoreUnavailableError, match=r"\S"):
                await store.route(16)
            assert await store.route(16) == Routed(1, 1)
        finally:
            await store.close()

    asyncio.run(work())
