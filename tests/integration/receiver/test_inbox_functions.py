"""The inbox as functions in SQL: their values, versions and DDL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg.errors import CheckViolation, NoActiveSqlTransaction, SerializationFailure

from holdfast.receiver import Inbox
from holdfast.receiver.ddl import ddl
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.integration.dispatcher.delivery.store.test_search_path import NOTED, OPERATORS
from tests.support.console.catalogue import STRUCTURE
from tests.support.dispatch.inboxes import DRIVERS, Driver, delivery, engine_of, receiving
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


def test_functions_use_no_name_of_the_callers_search_path(connection: psycopg.Connection) -> None:
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


FIRST_VERSION = """
    DROP SCHEMA payouts CASCADE;
    CREATE SCHEMA payouts;
    CREATE TABLE payouts.inbox (
        key         text        NOT NULL CONSTRAINT pk_inbox PRIMARY KEY,
        body_sha256 bytea       NOT NULL,
        subject     text        NOT NULL,
        sequence    bigint      NOT NULL,
        outcome     text        NOT NULL,
        result      jsonb,
        received_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT ck_inbox_key CHECK (key ~ '^hf_[0-9a-f]{32}$'),
        CONSTRAINT ck_inbox_body_sha256 CHECK (octet_length(body_sha256) = 32),
        CONSTRAINT ck_inbox_sequence CHECK (sequence >= 1),
        CONSTRAINT ck_inbox_outcome CHECK (outcome IN ('applied', 'stale'))
    );
    CREATE INDEX ix_inbox_received_at ON payouts.inbox (received_at);
    CREATE TABLE payouts.inbox_subject (
        subject       text   NOT NULL CONSTRAINT pk_inbox_subject PRIMARY KEY,
        last_sequence bigint NOT NULL,
        CONSTRAINT ck_inbox_subject_last_sequence CHECK (last_sequence >= 1)
    ) WITH (fillfactor = 70);
"""
WITHOUT_FUNCTIONS = """
    DROP TRIGGER tr_inbox_commit ON payouts.inbox;
    DROP FUNCTION payouts.inbox_receive, payouts.inbox_result, payouts.inbox_find,
        payouts.inbox_prune, payouts.inbox_commit, payouts.inbox_version;
    DROP INDEX payouts.ix_inbox_received_at
"""
NEW = """
    INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome)
    VALUES ('hf_' || repeat('a', 32), sha256('x'), 'm_482', 1, 'applied')
"""


VERSIONS = {
    "of today": "SELECT",
    "before the functions": WITHOUT_FUNCTIONS,
    "of the first version": FIRST_VERSION,
}


@pytest.fixture(params=VERSIONS.values(), ids=VERSIONS)
def tables(request: pytest.FixtureRequest, payouts_dsn: str) -> str:
    """Tables of one version, which today's DDL leaves as they are."""
    with psycopg.connect(payouts_dsn) as connection:
        connection.execute(request.param)
        connection.execute(Inbox().ddl)
    return payouts_dsn


@pytest.mark.parametrize("driver", list(DRIVERS.values()), ids=list(DRIVERS))
def test_every_driver_delivers_into_tables_of_either_version(tables: str, driver: Driver) -> None:
    """A key that comes again and a sequence that comes late take the other statements."""
    later, earlier = delivery(2), delivery(1)
    outcomes = [
        driver(tables, message, lambda _receipt: None, "m_482").outcome
        for message in (later, later, earlier)
    ]
    assert outcomes == [ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE]


@pytest.mark.parametrize(
    "change",
    [
        "key = 'hf_1'",
        "key = upper(key)",
        "key = key || 'a'",
        "key = 'HF_' || substr(key, 4)",
        "key = substr(key, 1, 34) || 'g'",
        "key = substr(key, 1, 34) || e'\\n'",
        "body_sha256 = 'x'",
        "sequence = 0",
        "outcome = 'duplicate'",
    ],
)
def test_what_no_delivery_can_have_is_refused(tables: str, change: str) -> None:
    with psycopg.connect(tables) as connection:
        connection.execute(NEW)
        with pytest.raises(CheckViolation):
            connection.execute(f"UPDATE payouts.inbox SET {change}".encode())


def test_fence_below_the_first_sequence_is_refused(tables: str) -> None:
    with psycopg.connect(tables) as connection, pytest.raises(CheckViolation):
        connection.execute("INSERT INTO payouts.inbox_subject VALUES ('m_482', 0)")


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_keys_of_an_older_inbox_stay_known(payouts_dsn: str, version: str) -> None:
    known, late = delivery(2), delivery(1)
    with psycopg.connect(payouts_dsn) as connection:
        connection.execute(version.encode())
        connection.execute(
            "INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome, result)"
            " VALUES (%s, sha256(%s), 'm_482', 2, 'applied', '{\"hold\": 7}')",
            [known.key, known.raw],
        )
        connection.execute("INSERT INTO payouts.inbox_subject VALUES ('m_482', 2)")
        connection.commit()
        connection.execute(Inbox().ddl)
        receipts = [
            Inbox().receive_sync(connection, each, subject="m_482") for each in (known, late)
        ]
    duplicate, stale = ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE
    assert [receipt.outcome for receipt in receipts] == [duplicate, stale]
    assert receipts[0].result == {"hold": 7}


def test_connection_continues_after_tables_are_recreated(payouts_dsn: str) -> None:
    """What it has prepared was planned for columns of types that are gone."""
    inbox = Inbox()
    with (
        psycopg.connect(payouts_dsn, autocommit=True, prepare_threshold=0) as connection,
        psycopg.connect(payouts_dsn, autocommit=True) as other,
    ):
        outcomes = []
        for _ in range(2):
            for sequence in (2, 3, 1):
                with receiving(connection, delivery(sequence)) as receipt:
                    pass
                outcomes.append(receipt.outcome)
            other.execute("DROP SCHEMA payouts CASCADE")
            other.execute(inbox.ddl)
    applied, stale = ReceiptOutcome.APPLIED, ReceiptOutcome.STALE
    assert outcomes == [applied, applied, stale] * 2


# The catalogue describes the schema of this name, whoever made it.
SCHEMA = "holdfast"
QUERIES = {
    **STRUCTURE,
    "storage": "SELECT reloptions FROM pg_class WHERE relname LIKE 'inbox%'",
    "functions": "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'inbox%'",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}

ENVIRONMENT = """
from alembic import context
from sqlalchemy.dialects import postgresql

connection = context.config.attributes.get("connection")
if connection is None:
    context.configure(dialect_name="postgresql", output_buffer=context.config.output_buffer)
else:
    context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
"""
REVISION = """
from alembic import op
from holdfast.receiver import ddl

revision, down_revision = "0001", None


def upgrade():
    ddl.upgrade(op, schema="holdfast")


def downgrade():
    ddl.downgrade(op, schema="holdfast")
"""


@pytest.fixture
def history(tmp_path: Path) -> Config:
    """Alembic's configuration of a service whose only revision makes the inbox."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    (tmp_path / "versions" / "0001_inbox.py").write_text(REVISION)
    config = Config(stdout=StringIO(), output_buffer=StringIO())
    config.set_main_option("script_location", str(tmp_path))
    return config


def structure(dsn: str) -> dict[str, list[str]]:
    with psycopg.connect(dsn) as connection:
        return {
            name: sorted(map(str, connection.execute(query.encode()).fetchall()))
            for name, query in QUERIES.items()
        }


def migrate(config: Config, dsn: str, *, up: bool = True) -> None:
    with engine_of(dsn).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head") if up else command.downgrade(config, "base")


def test_plain_sql_and_a_revision_make_the_same_tables(
    make_database: Callable[[str | None], str], history: Config
) -> None:
    plain, migrated, printed = (make_database(None) for _ in range(3))
    with psycopg.connect(plain) as connection:
        connection.execute(ddl(SCHEMA).encode())
        connection.execute(Inbox(SCHEMA).ddl)
    command.upgrade(history, "head", sql=True)
    with psycopg.connect(printed) as connection:
        connection.execute(history.output_buffer.getvalue().encode())
    migrate(history, migrated)
    made = structure(plain)
    assert len(made["tables"]) == 2
    assert "inbox_receive" in str(made["functions"])
    assert "fillfactor=70" in str(made["storage"])
    assert structure(migrated) == structure(printed) == made


def test_revision_is_taken_back_and_leaves_the_schema(
    make_database: Callable[[str | None], str], history: Config
) -> None:
    dsn = make_database(None)
    migrate(history, dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE holdfast.of_the_service ()")
    migrate(history, dsn, up=False)
    tables = structure(dsn)["tables"]
    assert len(tables) == 1
    assert "of_the_service" in tables[0]
    migrate(history, dsn)
    assert len(structure(dsn)["tables"]) == 3


def test_newer_inbox_is_not_overwritten(make_database: Callable[[str | None], str]) -> None:
    with psycopg.connect(make_database(None), autocommit=True) as connection:
        connection.execute(Inbox().ddl)
        connection.execute(
            "CREATE OR REPLACE FUNCTION payouts.inbox_version() RETURNS integer"
            " LANGUAGE sql IMMUTABLE AS 'SELECT 99'"
        )
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            connection.execute(Inbox().ddl)


def test_running_the_tables_again_waits_for_no_delivery(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_database(None)
    with psycopg.connect(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute(Inbox().ddl)
        connection.commit()
        connection.execute(
            "SELECT payouts.inbox_receive('hf_' || repeat('a', 32), sha256('x'), 'm', 1)"
        )
        other.execute("SET lock_timeout = '5s'")
        other.execute(Inbox().ddl)
