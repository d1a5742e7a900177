"""Connections in the operator's role for a process that serves many people at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

from dispatcher.operators.common.session import (
    CONNECT_SECONDS,
    OperatorSession,
    Row,
    acting_as,
    cause,
    prepare,
    refusals,
)
from dispatcher.shared.errors import StoreUnavailableError
from sink.contract.exits import CommandError

WAIT_SECONDS = 5.0
"""How long a request waits for a connection before it is told to come again."""

IN_LINE_MAX = 64
"""As many requests wait for a connection at once; the next one is told to come again."""

Store = TypeVar("Store", bound=OperatorSession)


class PoolCounts(NamedTuple):
    """The connections of this process to the database."""

    connections: int
    idle: int
    waiting: int
    """Requests that wait for one."""


class OperatorPool:
    """Lends connections; one that is lent is nobody else's."""

    def __init__(self, dsn: str, connections: int) -> None:
        """Connect to nothing yet: `open` does."""
        self._pool: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
            dsn,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                "application_name": "holdfast-api",
            },
            configure=prepare,
            reset=_as_before,
            check=ConnectionPool.check_connection,
            min_size=1,
            max_size=connections,
            max_waiting=IN_LINE_MAX,
            timeout=WAIT_SECONDS,
            reconnect_timeout=WAIT_SECONDS,
            open=False,
        )

    def open(self) -> None:
        """Begin to connect; what cannot be reached now is tried again for each request."""
        self._pool.open()

    def close(self) -> None:
        """Close every connection; one that is lent when it comes back."""
        self._pool.close(timeout=WAIT_SECONDS)

    def counts(self) -> PoolCounts:
        """Return how many connections there are."""
        found = self._pool.get_stats()
        names = ("pool_size", "pool_available", "requests_waiting")
        return PoolCounts(*(found.get(name, 0) for name in names))

    @contextmanager
    def lend(self, store: type[Store], actor: str, person: str | None = None) -> Iterator[Store]:
        """Lend a store in which `actor` acts; see `acting_as`.

        Raises `StoreUnavailableError` where the database is away or busy, and `CommandError` for
        what it refuses.
        """
        try:
            acting = acting_as(actor, person)
            with self._pool.connection() as connection, acting, _answers(), refusals():
                yield store(connection)
        except (PoolTimeout, TooManyRequests) as error:
            raise StoreUnavailableError(
                "no connection to the database was free in time. Nothing was changed; try again."
            ) from error


def _as_before(connection: psycopg.Connection[Row]) -> None:
    """Take back what a store set for its own looks: the next one may have to write."""
    connection.read_only = None
    connection.isolation_level = None
    connection.deferrable = None


@contextmanager
def _answers() -> Iterator[None]:
    """Tell a database that is away, or took too long, from one that refuses."""
    try:
        yield
    except CommandError as refused:
        error = refused.__context__
        if isinstance(error, errors.QueryCanceled):
            raise StoreUnavailableError(
                "the database took too long over this. Nothing was changed; ask for less at once."
            ) from error
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            raise StoreUnavailableError(
                f"the database went away: {cause(error)}. Look whether the change was made, and"
                " try again."
            ) from error
        raise
