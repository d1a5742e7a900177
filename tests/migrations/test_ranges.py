"""Sessions on a database of another revision: who is served, who is refused, who is recorded.

Real: the server, the sink, the dispatcher, the operators' sessions.
"""

from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.common.session import OperatorSession
from holdfast.dispatcher.operators.database.store import Database
from holdfast.migrations.phases import running
from holdfast.migrations.prune import prune
from holdfast.migrations.upgrade import downgrade, upgrade
from holdfast.sink import SchemaMismatch
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.schema import SCHEMA_REVISION, WORKS_FROM
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch.dispatching import drain
from tests.support.job.decisions import Decisions
from tests.support.world import World


def _sink(dsn: str) -> None:
    with closing(Writer(dsn, "payouts")) as writer:
        writer.check()


def _dispatcher(dsn: str) -> None:
    drain(dsn)


def _operator(dsn: str) -> None:
    with OperatorSession.connect(dsn):
        pass


def _janitor(dsn: str) -> None:
    prune(dsn, days=400, dry_run=True, reason="a test")


SESSIONS = pytest.mark.parametrize("session", [_sink, _dispatcher, _operator, _janitor])


def _sessions(db: psycopg.Connection) -> list[tuple[str, str, str]]:
    return db.execute(
        "SELECT kind, revision, works_from FROM holdfast.code_session ORDER BY kind"
    ).fetchall()


@SESSIONS
def test_further_expanded_database_serves(world: World, session: Callable[[str], None]) -> None:
    world.db.execute("UPDATE holdfast.alembic_version SET version_num = '9998'")
    session(world.dsn)


@SESSIONS
def test_contracted_database_is_refused(world: World, session: Callable[[str], None]) -> None:
    world.db.execute(
        "UPDATE holdfast.alembic_version SET version_num = '9999', serves_from = '9998'"
    )
    with pytest.raises((SchemaMismatch, CommandError), match=r"from 9998 on.*upgrade this process"):
        session(world.dsn)


@SESSIONS
def test_too_old_revision_is_refused(world: World, session: Callable[[str], None]) -> None:
    downgrade(world.dsn, f"{int(WORKS_FROM) - 1:04}")
    with pytest.raises((SchemaMismatch, CommandError), match=r"holdfast db upgrade.*[Nn]othing"):
        session(world.dsn)


def test_oldest_revision_carries_a_decision_to_its_receiver(world: World) -> None:
    downgrade(world.dsn, WORKS_FROM)
    world.add_endpoint()
    with Decisions(world.dsn) as decisions:
        decisions.write("m_1", "m_2")
        world.drain()
        assert upgrade(world.dsn).after == SCHEMA_REVISION
        decisions.write("m_1")
    world.drain()
    assert len(world.receiver.seen) == 3


def test_sinks_dispatchers_and_servers_are_recorded_with_their_range(world: World) -> None:
    with Decisions(world.dsn):
        world.drain()
    pool = OperatorPool(world.dsn, 1)
    pool.open()
    try:
        with pool.lend(Database, "api") as store:
            assert store.schema_mismatch() is None
    finally:
        pool.close()
    assert _sessions(world.db) == [
        (kind, SCHEMA_REVISION, WORKS_FROM) for kind in ("api", "dispatcher", "sink")
    ]


def test_server_that_ends_in_order_does_not_count_as_running(world: World) -> None:
    pool = OperatorPool(world.dsn, 1)
    pool.open()
    with pool.lend(Database, "api"):
        assert [each.kind for each in running(world.db)] == ["api"]
    pool.close()
    assert running(world.db) == []


def test_commands_are_not_recorded(dsn: str, db: psycopg.Connection) -> None:
    _operator(dsn)
    assert _sessions(db) == []


def test_server_on_a_read_only_database_is_not_recorded(dsn: str, db: psycopg.Connection) -> None:
    pool = OperatorPool(f"{dsn} options='-c default_transaction_read_only=on'", 1)
    pool.open()
    try:
        with pool.lend(Database, "api") as store:
            assert store.schema_mismatch() is None
    finally:
        pool.close()
    assert _sessions(db) == []
