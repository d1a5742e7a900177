"""What a dispatcher with no right but its role's reads about the server, from a real Postgres."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.dispatcher.delivery.backlog_monitor import ServerMonitor
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.delivery.telemetry.metrics import Measures
from holdfast.dispatcher.delivery.telemetry.server_state import ServerState
from tests.support.waiting import eventually

TRANSACTIONS = 20


@pytest.fixture
def login(dsn: str, db: psycopg.Connection) -> Iterator[str]:
    """A login that may take on the dispatcher's role and nothing else."""
    name = f"dispatch_{uuid4().hex[:8]}"
    user = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'canary'").format(user))
    db.execute(sql.SQL("GRANT holdfast_dispatcher TO {}").format(user))
    yield make_conninfo(dsn, user=name, password="canary")
    db.execute(sql.SQL("DROP ROLE {}").format(user))


def read(dsn: str, telemetry: Telemetry | None = None) -> ServerState:
    """One step of the monitor."""

    async def stepped() -> ServerState:
        watch, measures = Watch(dsn), Measures()
        await watch.open()
        try:
            await ServerMonitor(watch, measures, telemetry or Telemetry()).step()
        finally:
            await watch.close()
        return measures.server

    return asyncio.run(stepped())


def spend_transactions(db: psycopg.Connection) -> None:
    for _ in range(TRANSACTIONS):
        db.execute("SELECT pg_current_xact_id()")


def test_dispatchers_role_alone_reads_everything(login: str) -> None:
    state = read(login)
    assert state.snapshot_ages.keys() == {"holdfast", "other", "prepared", "replication"}
    assert state.snapshot_ages["replication"] == 0
    assert 0 < state.frozen_ages["transaction"] < state.frozen_ages_max["transaction"]
    assert state.frozen_ages["multixact"] >= 0
    assert (state.size_bytes or 0) > 1_000_000
    assert 1 <= (state.connections or 0) <= (state.connections_max or 0)
    assert {each.name for each in state.tables} == {
        *("lane", "endpoint_pace", "replay_item", "batch", "subject", "transition")
    }


@pytest.mark.parametrize(
    ("application", "holder"), [("psql", "other"), ("holdfast sink payouts", "holdfast")]
)
def test_snapshot_of_another_login_is_seen_with_its_age_and_holder(
    dsn: str, db: psycopg.Connection, login: str, application: str, holder: str
) -> None:
    with psycopg.connect(dsn, application_name=application) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        spend_transactions(db)
        assert read(login).snapshot_ages[holder] >= TRANSACTIONS
    assert read(login).snapshot_ages[holder] < TRANSACTIONS


def test_transaction_that_wrote_and_waits_is_a_snapshot_too(
    dsn: str, db: psycopg.Connection, login: str
) -> None:
    with psycopg.connect(dsn, application_name="psql") as idle:
        idle.execute("SELECT pg_current_xact_id()")
        spend_transactions(db)
        assert read(login).snapshot_ages["other"] >= TRANSACTIONS


def test_dead_rows_and_the_last_vacuum_are_seen(db: psycopg.Connection, login: str) -> None:
    def seen(name: str = "endpoint_pace") -> tuple[int, float | None]:
        (found,) = [each for each in read(login).tables if each.name == name]
        return found.dead_rows, found.vacuum_age_seconds

    assert seen() == (0, None)
    db.execute(
        "INSERT INTO holdfast.endpoint (name, url, types, secret_refs)"
        " VALUES ('payouts', 'https://x.example', '{}', '{env:X}')"
    )
    for _ in range(5):
        db.execute("UPDATE holdfast.endpoint_pace SET held_until = now()")
    db.execute("SELECT pg_stat_force_next_flush()")
    eventually(lambda: seen()[0] >= 1)
    db.execute("VACUUM holdfast.endpoint_pace")
    eventually(lambda: seen()[1] is not None)


def test_size_is_unknown_to_a_role_that_may_not_connect_and_the_rest_is_known(
    dsn: str, db: psycopg.Connection, login: str
) -> None:
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    user = sql.Identifier(str(conninfo_to_dict(login)["user"]))
    db.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(name, user))
    db.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM public").format(name))
    try:
        state = read(login)
    finally:
        db.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM {}").format(name, user))
    assert state.size_bytes is None
    assert state.connections


def test_server_that_refuses_its_views_is_logged_once_and_ends_nothing(
    db: psycopg.Connection, login: str
) -> None:
    class Lines(Telemetry):
        def warn(self, line: object, **fields: object) -> None:
            self.counts[str(line)] += 1
            assert "pg_stat_activity" in str(fields["error"])

    telemetry = Lines()

    async def twice() -> ServerState:
        watch, measures = Watch(login), Measures()
        await watch.open()
        try:
            monitor = ServerMonitor(watch, measures, telemetry)
            for _ in range(2):
                assert await monitor.step() is False
        finally:
            await watch.close()
        return measures.server

    db.execute("REVOKE SELECT ON pg_stat_activity FROM public")
    assert asyncio.run(twice()) == ServerState()
    assert telemetry.counts == {"server.unread": 1}
