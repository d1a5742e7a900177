"""Connections in the operator's role for a process that serves many people at once."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

from holdfast.dispatcher.operators.common.session import (
    CONNECT_SECONDS,
    OperatorSession,
    Row,
    acting_as,
    cause,
    prepare,
    read_range,
    refusals,
)
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError, UnservedCommandError
from holdfast.sink.contract import schema
from holdfast.sink.contract.exits import CommandError

WAIT_SECONDS = 5.0
"""How long a request waits for a connection before it gets 503 with Retry-After."""

LEAVE_SECONDS = 1.0
"""How long the end of this process waits for a connection, to record that it ended."""

QUEUE_MAX = 64
"""Maximum number of requests that wait for a connection; the next one gets 503 at once."""

Store = TypeVar("Store", bound=OperatorSession)


class PoolCounts(NamedTuple):
    """The connections of this process to the database."""

    connections: int
    idle: int
    waiting: int
    """Requests that wait for one."""
    answer_age_seconds: float
    """Time since the database answered; at first, since the pool was made."""


class OperatorPool:
    """Lends each connection to one caller at a time."""

    def __init__(self, dsn: str, connections: int) -> None:
        """Connect nothing yet; `open` does."""
        self._name = f"{socket.gethostname()} pid {os.getpid()}"
        self._answered_at = seconds()
        self._refused: str | None = None
        """Why the newest connection does not serve this version."""
        self._pool: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
            dsn,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                # A table that changes under a prepared statement would make it fail from then on.
                "prepare_threshold": None,
                "application_name": "holdfast-api",
            },
            # Again for every new connection, at the latest each hour: the pool replaces old ones.
            configure=self._prepare,
            reset=_reset,
            check=ConnectionPool.check_connection,
            min_size=1,
            max_size=connections,
            max_waiting=QUEUE_MAX,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            open=False,
        )

    def misfit(self) -> str | None:
        """Return why the database does not serve this version; None if it does, or is away.

        Nothing is said of a read-only server: a standby may be behind its primary's upgrade.
        """
        try:
            with self._pool.connection() as connection:
                stored = read_range(connection)
            self._answered_at = seconds()
        except (psycopg.Error, TooManyRequests):
            return self._refused
        if stored["read_only"]:
            return None
        return schema.misfit(stored["revision"], stored["serves_from"])

    def open(self) -> None:
        """Begin to connect; each request retries a database that is not reachable now."""
        self._pool.open()

    def close(self) -> None:
        """Close every connection; a lent one is closed when it is returned."""
        # A database that accepts everything and never answers keeps no process from ending.
        leaving = Thread(target=self._leave, name="leave", daemon=True)
        leaving.start()
        leaving.join(WAIT_SECONDS)
        self._pool.close(timeout=WAIT_SECONDS)

    def _leave(self) -> None:
        # Without a connection, or before revision 0032, there is nothing to record.
        with suppress(psycopg.Error), self._pool.connection(timeout=LEAVE_SECONDS) as connection:
            connection.execute(schema.LEAVE, schema.session("api", self._name))

    def _prepare(self, connection: psycopg.Connection[Row]) -> None:
        self._refused = None
        try:
            prepare(connection, self._name)
        except UnservedCommandError as error:
            self._refused = error.misfit
            raise

    def counts(self) -> PoolCounts:
        """Return the connections of the pool and the requests that wait."""
        stats = self._pool.get_stats()
        connections, idle, waiting = (
            stats.get(name, 0) for name in ("pool_size", "pool_available", "requests_waiting")
        )
        return PoolCounts(connections, idle, waiting, seconds() - self._answered_at)

    @contextmanager
    def lend(self, store: type[Store], actor: str, person: str | None = None) -> Iterator[Store]:
        """Lend a store in which `actor` acts; see `acting_as`.

        Raises `StoreUnavailableError` when the database is not reachable or too slow, and
        `CommandError` for what it refuses.
        """
        try:
            acting = acting_as(actor, person)
            with self._pool.connection() as connection, acting, _unavailability(), refusals():
                yield store(connection)
                self._answered_at = seconds()
        except (PoolTimeout, TooManyRequests) as error:
            raise StoreUnavailableError(
                "no connection to the database was free in time. Nothing was changed; try again."
            ) from error


def _reset(connection: psycopg.Connection[Row]) -> None:
    """Undo what a store set for its own reads: the next store may write."""
    connection.read_only = None
    connection.isolation_level = None
    connection.deferrable = None


@contextmanager
def _unavailability() -> Iterator[None]:
    """Distinguish a database that is gone, or takes too long, from one that refuses."""
    try:
        yield
    except CommandError as refused:
        error = refused.__context__
        if isinstance(error, errors.QueryCanceled):
            raise StoreUnavailableError(
                "the database took too long for this. Nothing was changed; request less at once."
            ) from error
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            raise StoreUnavailableError(
                f"the connection to the database was lost: {cause(error)}. Check whether the change"
                " was made, and try again."
            ) from error
        raise
