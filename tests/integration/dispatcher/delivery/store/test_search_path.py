"""What a dispatcher finds: no name of another schema, and no schema of a stale standby.

Everything in the schema in front of the server's own names notes that it was called, and answers as
the server would. Doubled: the standby, by a read-only session.
"""

import asyncio
import json
import os
import socket
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.deploy.payouts.database import connect as payouts
from holdfast.dispatcher.delivery.rules.values import Instance
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.shared.errors import StoreRefusedError, UnservedCommandError, UnservedError
from holdfast.migrations.connect import connection as migrating
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import SEARCH_PATH
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import LOOPBACK, SECRET, drain
from tests.support.job.decisions import Decisions
from tests.support.world import World

pytestmark = pytest.mark.rest


FUNCTIONS = (
    ("set_config", "text, text, boolean", "text"),
    ("current_setting", "text", "text"),
    ("now", "", "timestamptz"),
    ("clock_timestamp", "", "timestamptz"),
    ("pg_backend_pid", "", "integer"),
    ("hashtext", "text", "integer"),
    ("pg_advisory_xact_lock", "bigint", "void"),
    ("pg_advisory_xact_lock_shared", "bigint", "void"),
    ("pg_notify", "text, text", "void"),
    ("array_length", "anyarray, integer", "integer"),
    ("to_regnamespace", "text", "regnamespace"),
    ("lower", "text", "text"),
    ("convert_from", "bytea, name", "text"),
    ("date_trunc", "text, timestamptz", "timestamptz"),
    ("jsonb_typeof", "jsonb", "text"),
)
OPERATORS = (
    ("=", "text", "texteq", "boolean"),
    ("=", "bigint", "int8eq", "boolean"),
    ("=", "uuid", "uuid_eq", "boolean"),
    ("<", "timestamptz", "timestamptz_lt", "boolean"),
    ("<=", "timestamptz", "timestamptz_le", "boolean"),
    (">", "bigint", "int8gt", "boolean"),
    ("||", "text", "textcat", "text"),
)
NOTED = """
    CREATE SCHEMA evil;
    GRANT USAGE, CREATE ON SCHEMA evil TO PUBLIC;
    CREATE TABLE evil.called (name text);
    GRANT INSERT, SELECT ON evil.called TO PUBLIC;
    CREATE FUNCTION evil.note(name text) RETURNS void
        LANGUAGE plpgsql SET search_path = pg_catalog AS $$
    BEGIN
        IF current_setting('transaction_read_only') = 'on' THEN
            RAISE EXCEPTION '% of the other schema was called', name;
        END IF;
        INSERT INTO evil.called VALUES (name);
    END $$;
"""


@pytest.fixture
def evil(dsn: str, db: psycopg.Connection) -> str:
    """A DSN of a user whose search path begins with that schema; its server process, too."""
    db.execute(NOTED)
    for name, arguments, result in FUNCTIONS:
        placeholders = (
            ", ".join(f"${n}" for n in range(1, arguments.count(",") + 2)) if arguments else ""
        )
        db.execute(
            f"""
            CREATE FUNCTION evil.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM evil.note('{name}');
                {"PERFORM" if result == "void" else "RETURN"} pg_catalog.{name}({placeholders});
            END $$""".encode()
        )
    for number, (symbol, kind, function, result) in enumerate(OPERATORS):
        db.execute(
            f"""
            CREATE FUNCTION evil.operator_{number}({kind}, {kind}) RETURNS {result}
            LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM evil.note('operator {symbol} of {kind}');
                RETURN pg_catalog.{function}($1, $2);
            END $$;
            CREATE OPERATOR evil.{symbol}
                (LEFTARG = {kind}, RIGHTARG = {kind}, FUNCTION = evil.operator_{number})
            """.encode()
        )
    database = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    path = "ALTER DATABASE {} SET search_path = evil, pg_catalog, public"
    db.execute(sql.SQL(path).format(database))
    # Shows that a session that does not exclude the schema does find it.
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT now(), 'a'::text = 'b'::text")
    called = {"now", "operator = of text"}
    assert {name for (name,) in db.execute("SELECT name FROM evil.called")} == called
    db.execute("DELETE FROM evil.called")
    return dsn


def test_nobody_finds_a_name_of_another_schema(world: World, evil: str) -> None:
    _run(evil, "db", "upgrade")
    _run(
        evil,
        *(
            "endpoint",
            "add",
            "payouts",
            "--url",
            world.receiver.url,
            "--secret-ref",
            f"env:{SECRET}",
        ),
        *("--allow-cidr", LOOPBACK, "--reason", "test"),
    )
    with Decisions(evil) as decisions:
        decisions.write("m_1", "m_2")
        drain(evil)
        decisions.write("m_1")
    assert len(world.receiver.seen) == 2
    key = str(world.receiver.seen[0].header("webhook-id"))
    for command in (
        ("status",),
        ("overview",),
        ("check",),
        ("database",),
        ("why", key),
        ("entry", "list"),
        ("entry", "show", key),
        ("trace", key),
        ("attempt", "list", key),
        ("endpoint", "show", "payouts"),
        ("endpoint", "set", "payouts", "--concurrency", "3", "--reason", "test"),
        ("endpoint", "backfill", "payouts"),
        ("subject", "list"),
        ("audit", "list"),
        ("config", "check"),
        ("replay", "plan", "--subject", "m_1", "--endpoint", "payouts", "--reason", "test"),
        ("db", "doctor"),
        ("db", "prune", "--older-than", "90d"),
    ):
        _run(evil, *command)
    drain(evil)
    assert len(world.receiver.seen) == 3
    assert world.db.execute("SELECT DISTINCT name FROM evil.called").fetchall() == []


def test_sessions_of_other_commands_use_the_server_search_path(evil: str) -> None:
    """The payouts service; operators; schema commands, also after a ROLLBACK; an inbox."""
    shown = "SHOW search_path"
    with operator_connection(evil) as operator:
        assert operator.execute(shown).fetchone() == {"search_path": SEARCH_PATH}
    with payouts(evil) as session:
        assert session.execute(shown).fetchone() == {"search_path": SEARCH_PATH}
    with migrating(evil) as other:
        other.rollback()
        assert other.execute(shown).fetchone() == (SEARCH_PATH,)
    with psycopg.connect(evil) as third:
        third.execute(statement("receipts/inbox_session"))
        assert third.execute(shown).fetchone() == (SEARCH_PATH,)


def _run(dsn: str, *arguments: str) -> None:
    done = holdfast(*arguments, "--json", dsn=dsn)
    allowed = (ExitCode.OK, ExitCode.DEGRADED, ExitCode.NOTHING_MATCHED)
    assert done.returncode in allowed, (arguments, done.stdout, done.stderr)
    assert json.loads(done.stdout or "null") is not None or not done.stdout


BEHIND = b"UPDATE holdfast.alembic_version SET version_num = '0030', serves_from = '0030'"


def _read_only(dsn: str) -> str:
    return make_conninfo(dsn, options="-c default_transaction_read_only=on")


async def _beat(dsn: str, db: psycopg.Connection) -> None:
    """One heartbeat of a dispatcher, after the revision has become an older one."""
    store = PostgresStore(dsn, connections_max=1)
    await store.open()
    try:
        db.execute(BEHIND)
        me = Instance(uuid4(), socket.gethostname(), os.getpid(), "1")
        await store.beat(me, 0, draining=False)
    finally:
        await store.close()


def test_dispatcher_waits_on_a_read_only_server_of_an_older_revision(world: World) -> None:
    with pytest.raises(StoreRefusedError, match="0030"):
        asyncio.run(_beat(_read_only(world.dsn), world.db))


def test_dispatcher_ends_on_a_primary_of_an_older_revision(world: World) -> None:
    with pytest.raises(UnservedError, match="0030"):
        asyncio.run(_beat(world.dsn, world.db))


def test_dispatcher_that_starts_on_a_stale_standby_may_start_again(world: World) -> None:
    world.db.execute(BEHIND)
    with pytest.raises(StoreRefusedError, match="0030"):
        asyncio.run(PostgresStore(_read_only(world.dsn)).open())


@pytest.mark.parametrize("read_only", [True, False], ids=["standby", "primary"])
def test_api_server_ends_only_on_an_old_primary(world: World, read_only: bool) -> None:
    dsn = _read_only(world.dsn) if read_only else world.dsn
    with closing(OperatorPool(dsn, 1)) as pool:
        pool.open()
        assert pool.misfit() is None
        world.db.execute(BEHIND)
        assert (pool.misfit() is None) is read_only
    with pytest.raises(CommandError, match="0030") as refused, operator_connection(dsn):
        pass
    assert isinstance(refused.value, UnservedCommandError) is not read_only
