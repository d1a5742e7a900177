"""Connections of the dispatcher: one pool, one role, a limit on everything that could hang."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random

from dispatcher.core.text import one_line
from dispatcher.errors import StoreUnavailableError
from dispatcher.outage import Outage
from dispatcher.store.statements import statement
from sink.contract.dsn import redact
from sink.contract.exits import CommandError, ExitCode
from sink.contract.roles import DISPATCHER
from sink.contract.schema import SCHEMA_REVISION

Connection = psycopg.AsyncConnection[DictRow]
T = TypeVar("T")

DEFAULTS: dict[str, str | int | None] = {
    "application_name": "holdfast-dispatcher",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Connection parameters in seconds (`tcp_user_timeout`: ms); the DSN's own come before them."""

CONNECTIONS_MAX = 8
"""One for each loop that may be in a transaction at once."""

POOL_SECONDS = 3.0
"""How long a loop waits for a connection before it says that the database is away."""

# InternalError: a server that became read-only, or that ended a transaction of ours.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
_POOL_LOGGER = logging.getLogger("psycopg.pool")
_CONFLICT = (errors.DeadlockDetected, errors.SerializationFailure)


class _LastWords(logging.Handler):
    """Why the pool could not connect: it tells its logger, and callers only that time is up."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the newest message."""
        self.text = f" ({record.getMessage()})"


class Sessions:
    """The pool, and the only place that meets the database's errors."""

    def __init__(self, dsn: str, outage: Outage) -> None:
        """`dsn` is a libpq URI or keywords. Raises `CommandError` when it is neither."""
        self._outage = outage
        try:
            self._conninfo = make_conninfo("", **(DEFAULTS | conninfo_to_dict(dsn)))
        except psycopg.ProgrammingError:
            # libpq quotes the part that it could not read, which may be a piece of the password.
            raise CommandError(
                "the DSN cannot be read: it is neither a libpq URI nor keywords. Nothing was"
                " changed; check --dsn or HOLDFAST_DSN.",
                ExitCode.USAGE,
            ) from None
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, "row_factory": dict_row},
            configure=_take_role,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            timeout=POOL_SECONDS,
            reconnect_timeout=POOL_SECONDS,
            open=False,
        )
        self._last_words = _LastWords()

    async def open(self) -> None:
        """Check that the database is there and has our schema, then open the pool.

        Raises `StoreUnavailableError` when nobody answers, `CommandError` for another schema.
        """
        async with self._translated():
            connection: Connection = await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, row_factory=dict_row
            )
            async with connection:
                await _check_schema(connection)
            _POOL_LOGGER.addHandler(self._last_words)
            _POOL_LOGGER.propagate = False
            await self._pool.open()

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close(timeout=POOL_SECONDS)
        _POOL_LOGGER.removeHandler(self._last_words)

    async def transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in one transaction; a deadlock, which rolled it back, runs it again.

        Raises `StoreUnavailableError` when the database is away; whether the transaction stands is
        then not known.
        """
        async with self._watched():
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_CONFLICT),
                stop=stop_after_attempt(3),
                wait=wait_random(0, 0.05),
                reraise=True,
            ):
                with attempt:
                    async with self._pool.connection() as connection, connection.transaction():
                        return await work(connection)
        raise AssertionError("tenacity ends by returning or raising")

    async def rows(self, name: str, parameters: dict[str, Any] | None = None) -> list[DictRow]:
        """Run one statement as a transaction of its own, which holds no lock between two calls."""
        async with self._watched(), self._pool.connection() as connection:
            return await run(connection, name, parameters)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        try:
            async with self._translated():
                yield
        except StoreUnavailableError as error:
            self._outage.away(error)
            raise
        self._outage.back()

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        try:
            yield
            self._last_words.text = ""
        except PoolTimeout as error:
            cause = f"{error}{self._last_words.text}"
            raise StoreUnavailableError(one_line(redact(cause))) from None
        except _AWAY as error:
            raise StoreUnavailableError(one_line(redact(str(error)))) from None


async def run(
    connection: Connection, name: str, parameters: dict[str, Any] | None = None
) -> list[DictRow]:
    """Run the statement `name`; returns its rows, or an empty list for one that has none."""
    cursor = await connection.execute(statement(name), parameters, binary=True)
    return await cursor.fetchall() if cursor.description else []


async def _take_role(connection: Connection) -> None:
    await connection.execute(statement("session"), {"role": DISPATCHER})


async def _check_schema(connection: Connection) -> None:
    missing = CommandError("this database has no Holdfast schema: run `holdfast db upgrade` first.")
    try:
        await _take_role(connection)
    except errors.InvalidParameterValue:
        raise missing from None
    except errors.InsufficientPrivilege:
        raise CommandError(
            f"the database user of this DSN may not act as {DISPATCHER}; nothing was changed."
            f" Grant it: GRANT {DISPATCHER} TO <user>."
        ) from None
    found = await run(connection, "schema_installed")
    if not found[0]["installed"]:
        raise missing
    rows = await run(connection, "schema_revision")
    revision = rows[0]["revision"] if rows else "none"
    if revision != SCHEMA_REVISION:
        raise CommandError(
            f"the database has schema revision {revision}, this version needs {SCHEMA_REVISION}."
            " Nothing was changed: run `holdfast db upgrade`, or use the version of Holdfast that"
            " the database was upgraded for."
        )
