"""A connection outside delivery's pool, for the backlog monitor and the doorbell.

Delivery never waits for it, and it never waits for delivery's connections.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg
from psycopg.rows import dict_row

from holdfast.dispatcher.delivery.store.messages import run
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.session import Sessions, read_range, translated
from holdfast.dispatcher.delivery.telemetry.server_state import ServerState, TableState


@dataclass(frozen=True, slots=True)
class Waiting:
    """The backlog of one endpoint that is not disabled."""

    name: str
    breaker: str
    """A `BreakerState`."""
    due_lanes: int
    """Lanes that may be claimed now; at most 10,000 of each priority are counted."""
    oldest_due_age_seconds: float
    """Age of the lane that has been due longest; 0 where none is due."""
    on_hold: int
    """Subjects that an operator holds."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog at one moment."""

    endpoints: tuple[Waiting, ...]
    partition_days_ahead: int
    misfit: str | None
    """A message about an unsuitable schema; None: it fits."""


class Listener:
    """A session that LISTENs to the doorbell. `async with watch.listener() as listener:`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def payloads(self, seconds: float) -> list[str]:
        """Return the payloads of notifications once any arrives; empty after `seconds`.

        Raises `StoreUnavailableError` when the connection breaks.
        """
        async with translated():
            notifications = self._connection.notifies(timeout=seconds, stop_after=1)
            return [notify.payload async for notify in notifications]


class Watch:
    """Queries on a pool of one connection. Every method raises `StoreUnavailableError`."""

    def __init__(self, dsn: str) -> None:
        """`dsn` is a libpq URI or keywords."""
        self._sessions = Sessions(dsn, None, connections_max=1)

    async def open(self) -> None:
        """Connect. Raises `CommandError` for a schema that does not fit."""
        await self._sessions.open()

    async def close(self) -> None:
        """Close the connection."""
        await self._sessions.close()

    async def backlog(self) -> Backlog:
        """Return the current backlog."""

        async def work(connection: Connection) -> Backlog:
            _, misfit = await read_range(connection)
            if misfit is not None:
                return Backlog((), 0, misfit)
            (partitions,) = await run(connection, "days_ahead")
            rows = await run(connection, "upkeep/backlog")
            return Backlog(tuple(Waiting(**row) for row in rows), partitions["days"], None)

        return await self._sessions.transaction(work)

    async def undelivered(self) -> dict[str, float]:
        """Return the age in seconds of the oldest undelivered entry of each endpoint that is not
        disabled, in whatever state its lane is; 0 without any.
        """
        rows = await self._sessions.rows("undelivered", {"late_seconds": 0, "most": None})
        return {row["endpoint"]: row["age_seconds"] for row in rows}

    async def server(self) -> ServerState:
        """Return the state of the server, as far as every login may read it."""

        async def work(connection: Connection) -> ServerState:
            (row,) = await run(connection, "upkeep/server")
            tables = await run(connection, "upkeep/dead_rows")
            return ServerState(**row, tables=tuple(TableState(**each) for each in tables))

        return await self._sessions.transaction(work)

    async def ring(self, payload: str) -> None:
        """Notify every dispatcher, with `payload`."""
        await self._sessions.rows("upkeep/doorbell_ring", {"word": payload})

    @asynccontextmanager
    async def listener(self) -> AsyncIterator[Listener]:
        """Connect a session that listens to the doorbell; it is closed with the block."""
        async with translated():
            connection: Connection = await psycopg.AsyncConnection.connect(
                self._sessions.conninfo, autocommit=True, row_factory=dict_row
            )
        try:
            async with translated():
                await run(connection, "upkeep/doorbell_listen")
            yield Listener(connection)
        finally:
            await connection.close()
