"""The service's database: its statements, connections and tables."""

from importlib.resources import files
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from holdfast.receiver import Inbox
from holdfast.sink.contract import statements
from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.exits import CommandError

CONNECTION: dict[str, Any] = {
    "application_name": "holdfast-payouts",
    "autocommit": True,
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "row_factory": dict_row,
}
POOL_SIZE_MAX = 8
POOL_WAIT_SECONDS_MAX = 5.0
POOL_START_SECONDS_MAX = 30.0

Pool = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]


def statement(name: str) -> bytes:
    """Return a statement of this package."""
    return statements.statement("holdfast.deploy.payouts", name)


def connect(dsn: str) -> psycopg.Connection[DictRow]:
    """Open a connection with time limits; raises `CommandError` if the database does not answer."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq quotes what it cannot parse, which may be part of the password.
        raise CommandError(
            "the payouts DSN is malformed: expected postgresql://user@host/database or"
            " 'host=... dbname=...'. Nothing was changed; check --dsn or PAYOUTS_DSN.",
            code="database_unavailable",
        ) from None
    try:
        connection = psycopg.Connection[DictRow].connect(dsn, **CONNECTION)
        connection.execute(statement("session"))
    except psycopg.Error as error:
        raise CommandError(
            f"the payouts database did not answer: {text_of(error)}. Nothing was changed;"
            " check --dsn or PAYOUTS_DSN.",
            code="database_unavailable",
        ) from error
    return connection


def text_of(error: psycopg.Error) -> str:
    """Return the message of a database error, on one line and without a password."""
    message = error.diag.message_primary or redact(str(error)) or type(error).__name__
    return " ".join(message.split()).rstrip(".")


def create_tables(dsn: str, inbox: Inbox) -> None:
    """Create the inbox and the service's tables if they do not exist; safe for concurrent starts.

    If they exist, no DDL runs, so a start does not wait for locks of a running service. Raises
    `CommandError`.
    """
    ddl = files("holdfast.deploy.payouts").joinpath("schema.sql").read_text(encoding="utf-8")
    doing = "checked"
    try:
        with connect(dsn) as connection:
            row = connection.execute(statement("find_tables")).fetchone()
            if row and row["there"]:
                return
            doing = "created"
            with connection.transaction():
                connection.execute(statement("lock_schema"))
                connection.execute(inbox.ddl)
                connection.execute(ddl)
    except psycopg.Error as error:
        raise CommandError(
            f"the service's tables cannot be {doing}: {text_of(error)}. They are created together,"
            " or none is. Start it once as a user with the CREATE privilege on this database; grant"
            " this user USAGE on schema payouts; check that the database is writable.",
            code="schema_not_created",
        ) from None


def open_pool(dsn: str) -> Pool:
    """Create a pool that is not open yet; waiting for a connection has a time limit."""
    return AsyncConnectionPool(
        dsn,
        connection_class=psycopg.AsyncConnection[DictRow],
        kwargs=CONNECTION,
        configure=_configure,
        min_size=1,
        max_size=POOL_SIZE_MAX,
        timeout=POOL_WAIT_SECONDS_MAX,
        open=False,
    )


async def _configure(connection: psycopg.AsyncConnection[DictRow]) -> None:
    await connection.execute(statement("session"))
