"""A pool that gets every connection back, also from a task that is cancelled meanwhile.

It lends the most recently returned connection first: the caches of that server process are warm,
and light load is not spread over as many processes as the peak needed.
"""

import asyncio
from typing import Any

import psycopg
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

Connection = psycopg.AsyncConnection[DictRow]


class Pool(AsyncConnectionPool[Connection]):
    """`AsyncConnectionPool` that completes every return.

    The base class waits for its lock in the returning task. If that task is cancelled there,
    psycopg-pool 3.3.3 forgets the connection and still counts it: one fewer is available from then
    on, and the server keeps its session until the garbage collector runs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As for `AsyncConnectionPool`."""
        self._returns: set[asyncio.Task[None]] = set()
        super().__init__(*args, **kwargs)

    async def putconn(self, conn: Connection) -> None:
        """Return `conn`; if the task is cancelled, the return still completes."""
        returning = asyncio.create_task(super().putconn(conn))
        # The event loop keeps only a weak reference.
        self._returns.add(returning)
        returning.add_done_callback(self._returns.discard)
        await asyncio.shield(returning)

    async def _add_to_pool(self, conn: Connection) -> None:
        """Put `conn` at the end that the pool lends from: there is no setting for that."""
        await super()._add_to_pool(conn)
        if self._pool and self._pool[-1] is conn:
            self._pool.rotate(1)
