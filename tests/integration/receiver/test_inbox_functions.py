"""The functions of `inbox.sql` as a service in any language calls them: SQL on a connection."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from psycopg.errors import NoActiveSqlTransaction, SerializationFailure

from holdfast.receiver import Inbox
from tests.integration.dispatcher.delivery.store.test_search_path import NOTED, OPERATORS
from tests.support.waiting import eventually

KEY = "hf_" + "a" * 32
OTHER = "hf_" + "b" * 32
CALL = "SELECT outcome FROM payouts.inbox_receive('{}', sha256('{}'), '{}', {})"
SQL = files("holdfast.receiver").joinpath("inbox.sql").read_text(encoding="utf-8")


def call(key: str = KEY, body: str = "x", subject: str = "m_482", sequence: int = 1) -> bytes:
    return CALL.format(key, body, subject, sequence).encode()


def one(connection: psycopg.Connection[Any], query: bytes) -> Any:
    row = connection.execute(query).fetchone()
    return row and row[0]


def kept(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        return int(one(connection, b"SELECT count(*) FROM payouts.inbox"))


def act(connection: psycopg.Connection[Any]) -> None:
    connection.execute("INSERT INTO payouts.act VALUES (1)")


def simple(connection: psycopg.Connection[Any]) -> None:
    connection.execute(call())


def unnamed(connection: psycopg.Connection[Any]) -> None:
    connection.execute(call(), prepare=False, binary=True)


def prepared(connection: psycopg.Connection[Any]) -> None:
    connection.execute(call(), prepare=True)


def in_one_statement(connection: psycopg.Connection[Any]) -> None:
    connection.execute(b"CREATE TABLE payouts.did AS " + call())


MESSAGES = [simple, unnamed, prepared]


@pytest.fixture
def connection(payouts_dsn: str) -> Any:
    with psycopg.connect(payouts_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE payouts.act (n int)")
        yield connection


@pytest.mark.parametrize("send", [*MESSAGES, in_one_statement])
def test_call_in_autocommit_keeps_no_key(
    connection: psycopg.Connection, payouts_dsn: str, send: Callable[..., None]
) -> None:
    with pytest.raises(NoActiveSqlTransaction):
        send(connection)
    assert kept(payouts_dsn) == 0


@pytest.mark.parametrize("send", MESSAGES)
def test_call_in_a_transaction_keeps_its_key(
    connection: psycopg.Connection, payouts_dsn: str, send: Callable[..., None]
) -> None:
    """Also with an action that writes nothing here."""
    for before, after in (
        ("SELECT 1", "SELECT 1"),
        ("SELECT 1", "INSERT INTO payouts.act VALUES (1)"),
        ("SAVEPOINT a", "RELEASE a"),
        ("SET CONSTRAINTS ALL IMMEDIATE", "SELECT 1"),
        ("SELECT 1", "SET CONSTRAINTS ALL IMMEDIATE"),
    ):
        connection.execute("BEGIN")
        connection.execute(before.encode())
        send(connection)
        connection.execute(after.encode())
        connection.execute("COMMIT")
        assert kept(payouts_dsn) == 1
        connection.execute("TRUNCATE payouts.inbox, payouts.inbox_subject")


def test_begin_and_call_in_one_message_keep_the_key(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    connection.execute(b"BEGIN;" + call())
    connection.execute("COMMIT")
    assert kept(payouts_dsn) == 1


def test_pipeline_without_begin_is_one_transaction(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    with connection.pipeline():
        connection.execute(call())
        act(connection)
    assert kept(payouts_dsn) == 1


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_delivery_committed_meanwhile_is_seen_at_every_isolation_level(
    connection: psycopg.Connection, payouts_dsn: str, level: str
) -> None:
    for committed, outcome in (
        (call(), "duplicate"),
        (call(body="y"), "conflict"),
        (call(OTHER, sequence=5), "stale"),
    ):
        with connection.transaction():
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            connection.execute("SELECT count(*) FROM payouts.act")  # takes the snapshot
            with psycopg.connect(payouts_dsn) as other:
                assert one(other, committed) == "applied"
            if level != "READ COMMITTED":
                with pytest.raises(SerializationFailure):
                    connection.execute(call())
                raise psycopg.Rollback
            assert one(connection, call()) == outcome
        expected = 2 if outcome == "stale" and level == "READ COMMITTED" else 1
        assert kept(payouts_dsn) == expected
        connection.execute("TRUNCATE payouts.inbox, payouts.inbox_subject")


def test_key_dies_with_the_session_and_the_next_call_applies(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    """The server ends the process of a transaction that has key and action."""
    dying = psycopg.connect(payouts_dsn)
    assert one(dying, call()) == "applied"
    act(dying)
    with connection.transaction():
        assert one(connection, call()) == "running"
    connection.execute("SELECT pg_terminate_backend(%s, 10000)", [dying.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        dying.commit()
    assert (kept(payouts_dsn), one(connection, b"SELECT count(*) FROM payouts.act")) == (0, 0)
    with connection.transaction():
        assert one(connection, call()) == "applied"


def test_storm_with_kills_applies_each_key_once(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    """Each first try is killed at its commit, and repeated until it is answered."""
    keys = [f"hf_{number:032x}" for number in range(12)]

    def deliver(number: int, *, killed: bool) -> bool:
        key = keys[number % len(keys)]
        try:
            with psycopg.connect(payouts_dsn) as mine:
                outcome = one(mine, call(key, key, f"m_{number % 3}", 1 + number % len(keys)))
                if outcome == "applied":
                    mine.execute("INSERT INTO payouts.act VALUES (%s)", [int(key[3:], 16)])
                if killed:
                    connection.execute("SELECT pg_terminate_backend(%s)", [mine.info.backend_pid])
        except psycopg.Error:
            return False
        return outcome != "running"

    def until_done(number: int) -> None:
        deliver(number, killed=True)
        eventually(lambda: deliver(number, killed=False))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(until_done, range(len(keys) * 3)))
    applied = connection.execute(
        "SELECT key FROM payouts.inbox WHERE outcome = 'applied' ORDER BY key"
    ).fetchall()
    acts = connection.execute("SELECT n FROM payouts.act ORDER BY n").fetchall()
    assert [f"hf_{number:032x}" for (number,) in acts] == [key for (key,) in applied]
    assert kept(payouts_dsn) == len(keys)


def test_argument_that_no_delivery_has_is_refused(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    states = {
        "NULL, sha256('x'), 'm', 1": "23502",
        f"'{KEY}', NULL, 'm', 1": "23502",
        f"'{KEY}', sha256('x'), NULL, 1": "23502",
        f"'{KEY}', sha256('x'), 'm', NULL": "23502",
        f"upper('{KEY}'), sha256('x'), 'm', 1": "23514",
        f"'{KEY}', 'x', 'm', 1": "23514",
        f"'{KEY}', sha256('x'), 'm', 0": "23514",
    }
    answered = {}
    for arguments in states:
        with pytest.raises(psycopg.IntegrityError) as error, connection.transaction():
            connection.execute(f"SELECT payouts.inbox_receive({arguments})".encode())
        answered[arguments] = error.value.sqlstate
    assert (answered, kept(payouts_dsn)) == (states, 0)


def test_result_is_stored_once_for_an_applied_key(connection: psycopg.Connection) -> None:
    store = b"SELECT payouts.inbox_result('%s', '{\"hold\": 7}')" % KEY.encode()
    for before in (b"", call()):
        with connection.transaction():
            if before:
                connection.execute(before)
                connection.execute(store)
        with pytest.raises(psycopg.errors.NoDataFound):
            connection.execute(store)
    row = connection.execute("SELECT * FROM payouts.inbox_find(%s)", [KEY]).fetchone()
    assert row is not None
    assert (row[0], row[2], len(row[3])) == ("applied", {"hold": 7}, 64)
    assert connection.execute("SELECT * FROM payouts.inbox_find(%s)", [OTHER]).fetchone() is None


def test_prune_keeps_what_a_sender_may_repeat(connection: psycopg.Connection) -> None:
    for arguments in ("'6 days'", "'7 days', 0", "NULL", "'7 days', NULL"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute(f"SELECT payouts.inbox_prune({arguments})".encode())


def test_functions_use_no_name_of_the_callers_search_path(
    connection: psycopg.Connection,
) -> None:
    """Operators in a schema before the server's own record that they were called."""
    connection.execute(NOTED)
    for number, (symbol, kind, function, result) in enumerate(OPERATORS):
        connection.execute(
            f"""
            CREATE FUNCTION evil.op{number}({kind}, {kind}) RETURNS {result} LANGUAGE plpgsql AS $$
            BEGIN PERFORM evil.note('{symbol}'); RETURN pg_catalog.{function}($1, $2); END $$;
            CREATE OPERATOR evil.{symbol} (FUNCTION = evil.op{number},
                LEFTARG = {kind}, RIGHTARG = {kind})""".encode()
        )
    connection.execute("SET search_path = evil, pg_catalog")
    assert one(connection, b"SELECT ('a'::text || 'b') OPERATOR(pg_catalog.=) 'ab'")
    assert one(connection, b"DELETE FROM evil.called RETURNING name") == "||"
    with connection.transaction():
        for key, sequence in ((KEY, 2), (KEY, 2), (OTHER, 1)):
            connection.execute(call(key, sequence=sequence))
        connection.execute("SELECT payouts.inbox_result(%s, '1')", [KEY])
        connection.execute("SELECT * FROM payouts.inbox_find(%s)", [KEY])
        connection.execute("SELECT payouts.inbox_prune('7 days')")
    inbox = Inbox()
    with connection.transaction():
        inbox.inquire_sync(connection, KEY)
        inbox.prune_sync(connection)
    assert one(connection, b"SELECT name FROM evil.called") is None


def test_role_with_the_documented_grants_calls_every_function(
    connection: psycopg.Connection, payouts_dsn: str
) -> None:
    role = f"inbox_{connection.info.backend_pid}"
    granted = [line.removeprefix("--").strip() for line in SQL.splitlines() if "GRANT" in line]
    assert len(granted) == 3
    connection.execute(f"CREATE ROLE {role}".encode())
    try:
        for line in granted:
            connection.execute(line.replace("my_service", role).encode())
        with psycopg.connect(payouts_dsn) as service:
            service.execute(f"SET ROLE {role}".encode())
            for key, sequence in ((KEY, 2), (KEY, 2), (OTHER, 1)):
                service.execute(call(key, sequence=sequence))
            service.execute("SELECT payouts.inbox_result(%s, '1')", [KEY])
            service.execute("SELECT * FROM payouts.inbox_find(%s)", [KEY])
            service.execute("SELECT payouts.inbox_prune('7 days')")
            service.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                service.execute("DELETE FROM payouts.inbox_subject")
        assert kept(payouts_dsn) == 2
    finally:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
