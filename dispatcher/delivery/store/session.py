"""Connections of the dispatcher: one pool, one role, a time limit on everything that could hang.

Transactions keep no session state, so a pooler in transaction mode may run each in another session:
role and limits are sent with BEGIN, in the same round trip. Without a pooler, statements are
prepared at their first run: parsing and planning one takes several times as long as running it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import PoolTimeout
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random

from holdfast.dispatcher.delivery.store.messages import Plans, begin, run
from holdfast.dispatcher.delivery.store.pool import Connection, Pool
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import (
    StoreRefusedError,
    StoreUnavailableError,
    UnservedCommandError,
)
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract import schema
from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import DISPATCHER

T = TypeVar("T")


DEFAULTS: dict[str, str | int | None] = {
    "application_name": "holdfast-dispatcher",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Connection parameters in seconds (`tcp_user_timeout`: ms); those of the DSN override them."""

CONNECTIONS_MAX = 8
"""One for each loop that may be in a transaction at once."""

TRANSACTION_SECONDS = 40.0
"""Client-side time limit of a transaction, above the server's statement timeout. Nothing else
detects a server that acknowledges every byte and never answers."""

POOL_SECONDS = 3.0
"""How long a loop waits for a connection before the database counts as unavailable."""

# InternalError: a server that became read-only, or that ended the transaction.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
_REFUSED = (
    "25006",  # read_only_sql_transaction
    "53",  # insufficient_resources: disk
    "54",  # program_limit_exceeded: no transaction ID before a VACUUM
)
"""The beginnings of sqlstates by which a server refuses what writes, and continues to read."""

REFUSED_SECONDS = 10.0
"""For so long after a refusal, a completed transaction may be one that only read."""

_POOL_LOGGER = logging.getLogger("psycopg.pool")
# Without a handler, logging writes plain text between the JSON lines. Errors carry the text anyway.
for _logger in (logging.getLogger("psycopg"), _POOL_LOGGER):
    _logger.addHandler(logging.NullHandler())
_CHANGED_PLAN = "RevalidateCachedQuery"
"""The server's function that refuses a prepared statement whose columns changed. Its SQLSTATE is
that of everything unsupported, and its text is in the language of the server."""

_CONFLICT = (errors.DeadlockDetected, errors.SerializationFailure)
_POOLS: WeakSet[Pool] = WeakSet()


class _LastWords(logging.Handler):
    """Why the pool could not connect: it logs the reason, and raises only a time-out."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the newest message."""
        self.text = f" ({record.getMessage()})"


class Outage:
    """One outage of the database: two log lines instead of one for each failed attempt.

    A third line reports that the server answers again and refuses to write.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        """The database counts as available until `away`."""
        self._telemetry = telemetry
        self._since: float | None = None
        self._refused_at: float | None = None

    def away(self, error: StoreUnavailableError) -> None:
        """Record that a transaction could not reach the database."""
        refused = isinstance(error, StoreRefusedError)
        is_reported = self._since is not None and (self._refused_at is not None or not refused)
        if refused:
            self._refused_at = seconds()
        if self._since is None:
            self._since = seconds()
        if not is_reported:
            self._telemetry.warn(Line.STORE_AWAY, error=str(error))

    def back(self) -> None:
        """Record that a transaction completed."""
        refused_at = self._refused_at
        if refused_at is not None and seconds() - refused_at < REFUSED_SECONDS:
            return
        if self._since is not None:
            away = round(seconds() - self._since, 1)
            self._since = self._refused_at = None
            self._telemetry.info(Line.STORE_BACK, seconds=away)


class Sessions:
    """The pool; the only place that handles the database's errors."""

    def __init__(
        self,
        dsn: str,
        outage: Outage | None,
        connections_max: int = CONNECTIONS_MAX,
        *,
        warm: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        """`dsn` is a libpq URI or keywords. Raises `CommandError` when it is neither.

        `outage` logs when the database becomes unavailable and available; None logs nothing. `warm`
        runs in a transaction of each new connection that keeps prepared statements.
        """
        self._outage = outage
        self._warm = warm
        self.conninfo = _conninfo(dsn)
        """Includes the password; for connections outside the pool."""
        self._pool = Pool(
            self.conninfo,
            kwargs={"autocommit": True, "row_factory": dict_row},
            configure=self._configure,
            min_size=1,
            max_size=connections_max,
            timeout=POOL_SECONDS,
            reconnect_timeout=POOL_SECONDS,
            open=False,
        )
        self._last_words = _LastWords()
        _POOLS.add(self._pool)

    async def open(self) -> None:
        """Check that the database answers and has this version's schema, then open the pool.

        Raises `StoreUnavailableError` when nothing answers, `CommandError` for another schema.
        """
        async with translated(), self._explained():
            connection: Connection = await psycopg.AsyncConnection.connect(
                self.conninfo, autocommit=True, row_factory=dict_row
            )
            async with connection:
                await _check_schema(connection)
            _POOL_LOGGER.addHandler(self._last_words)
            _POOL_LOGGER.propagate = False
            await self._pool.open()

    async def _configure(self, connection: Connection) -> None:
        async with AsyncExitStack() as stack:
            # The pool forgets a connection that fails here, and leaves it open.
            stack.push_async_callback(connection.close)
            try:
                async with asyncio.timeout(TRANSACTION_SECONDS):
                    await self._prepare(connection)
            except TimeoutError:
                limit = f"{TRANSACTION_SECONDS:g} s"
                raise StoreUnavailableError(f"no answer within {limit}") from None
            stack.pop_all()

    async def _prepare(self, connection: Connection) -> None:
        # Lists of numbers always get the same type, so their statement is prepared only once.
        for dumper in (Int8Dumper, Int8BinaryDumper):
            connection.adapters.register_dumper(int, dumper)
        (row,) = await run(connection, "connection/backend")
        # A pooler reports an invented number instead of the server process's. The next
        # transaction may run in a session without the prepared statements.
        if row["pid"] != connection.info.backend_pid:
            connection.prepare_threshold = None
            return
        connection.prepare_threshold = 0
        if self._warm is not None:
            # A connection that is not warm is only slower at first.
            with suppress(psycopg.Error):
                await begin(connection, plans=Plans.GENERIC)
                await self._warm(connection)
                # After a ROLLBACK psycopg would prepare every statement again.
                await connection.commit()
            await connection.rollback()

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close(timeout=POOL_SECONDS)
        _POOL_LOGGER.removeHandler(self._last_words)

    async def transaction(
        self,
        work: Callable[[Connection], Awaitable[T]],
        within: float | None = None,
        *,
        begins: bool = False,
    ) -> T:
        """Run `work` in one transaction, and again after a deadlock, which rolled it back.

        With `begins`, `work` itself calls `begin` first, with its first statements. The time limit
        is `within` seconds (TRANSACTION_SECONDS). Raises `StoreUnavailableError` when the database
        is unavailable; whether the transaction committed is then unknown.
        """
        async with self._watched():
            # Retries are rare, and setting them up would cost time in every transaction.
            with suppress(*_CONFLICT):
                async with self._open_transaction(within, begins=begins) as connection:
                    return await work(connection)
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_CONFLICT),
                stop=stop_after_attempt(2),
                wait=wait_random(0, 0.05),
                reraise=True,
            ):
                with attempt:
                    async with self._open_transaction(within, begins=begins) as connection:
                        return await work(connection)
        raise AssertionError("tenacity ends by returning or raising")

    async def rows(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[DictRow]:
        """Run one statement as its own transaction, which holds no lock afterwards."""
        async with self._watched(), self._open_transaction() as connection:
            return await run(connection, name, parameters)

    @asynccontextmanager
    async def _open_transaction(
        self, within: float | None = None, *, begins: bool = False
    ) -> AsyncIterator[Connection]:
        """Lend a connection with an open transaction; commit or roll back after the block."""
        limit = within or TRANSACTION_SECONDS
        async with self._pool.connection() as connection:
            try:
                async with asyncio.timeout(limit):
                    if not begins:
                        await begin(connection)
                    yield connection
                    await connection.commit()
            except TimeoutError:
                await connection.close()
                raise StoreUnavailableError(f"no answer within {limit:g} s") from None

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Add the reason to the pool's time-out."""
        try:
            yield
            self._last_words.text = ""
        except PoolTimeout as error:
            cause = f"{error}{self._last_words.text}"
            raise StoreUnavailableError(one_line(redact(cause))) from None

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        try:
            async with translated(), self._explained():
                yield
        except StoreUnavailableError as error:
            if self._outage is not None:
                self._outage.away(error)
            raise
        if self._outage is not None:
            self._outage.back()


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Turn errors of an unavailable database into `StoreUnavailableError`, without passwords."""
    try:
        yield
    except _AWAY as error:
        refused = (error.sqlstate or "").startswith(_REFUSED)
        kind = StoreRefusedError if refused else StoreUnavailableError
        raise kind(one_line(redact(str(error)))) from None
    except errors.FeatureNotSupported as error:
        # A table changed under a prepared statement. It is prepared again after the ROLLBACK.
        if error.diag.source_function != _CHANGED_PLAN:
            raise
        raise StoreUnavailableError(one_line(str(error))) from None


@dataclass(frozen=True, slots=True)
class Pools:
    """Connections of this process, over all its pools."""

    connections: int
    """Open connections, in use or idle."""
    waits: int
    """Number of waits for a connection since the start."""
    waited_seconds: float
    """Total time of these waits."""


def pools() -> Pools:
    """Return the current state of this process's pools."""
    stats = [pool.get_stats() for pool in list(_POOLS)]
    return Pools(
        connections=sum(each.get("pool_size", 0) for each in stats),
        waits=sum(each.get("requests_queued", 0) for each in stats),
        waited_seconds=sum(each.get("requests_wait_ms", 0) for each in stats) / 1000,
    )


def _conninfo(dsn: str) -> str:
    """Return `dsn` with our defaults. Raises `CommandError` when it cannot be read."""
    try:
        return make_conninfo("", **(DEFAULTS | conninfo_to_dict(dsn)))
    except psycopg.ProgrammingError:
        # libpq quotes the part that it could not parse, which may be part of the password.
        raise CommandError(
            "the DSN cannot be read: it is neither a libpq URI nor keywords. Nothing was"
            " changed; check --dsn or HOLDFAST_DSN.",
            ExitCode.USAGE,
            code="invalid_dsn",
        ) from None


async def read_range(connection: Connection) -> tuple[str | None, str | None]:
    """Return the schema's revision, and why this version must not work on it (None: it may).

    Raises `StoreRefusedError` for the reason on a server that is read-only: a standby may be behind
    the upgrade that its primary has, and is not where a dispatcher works.
    """
    cursor = await connection.execute(schema.READ, binary=True)
    row = await cursor.fetchone() or {"revision": None, "serves_from": None, "read_only": False}
    revision: str | None = row["revision"]
    misfit = schema.misfit(revision, row["serves_from"])
    if misfit is not None and row["read_only"]:
        raise StoreRefusedError(f"the server is read-only or a standby, and {misfit}")
    return revision, misfit


async def _check_schema(connection: Connection) -> None:
    missing = CommandError(
        "this database has no Holdfast schema: run `holdfast db upgrade` first.",
        code="schema_missing",
    )
    try:
        await begin(connection)
    except errors.InvalidParameterValue:
        raise missing from None
    except errors.InsufficientPrivilege:
        raise CommandError(
            f"the database user of this DSN may not act as {DISPATCHER}; nothing was changed."
            f" Grant it: GRANT {DISPATCHER} TO <user>.",
            code="database_role_missing",
        ) from None
    rows = await run(connection, "schema_installed")
    if not rows[0]["installed"]:
        raise missing
    _, misfit = await read_range(connection)
    if misfit is not None:
        raise UnservedCommandError(misfit)
