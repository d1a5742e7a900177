"""A pool that gets every connection back, also from a task that is cancelled meanwhile.

It lends first what came back last: that server process has what it needs at hand, and what little
is to do between two decisions is not spread over as many processes as there were at the busiest.
"""

import asyncio
from typing import Any

import psycopg
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

Connection = psycopg.AsyncConnection[DictRow]


class Pool(AsyncConnectionPool[Connection]):
    """`AsyncConnectionPool`, but a return is carried through.

    The pool's own waits for its lock in the task of whoever returns. Cancelled there, psycopg-pool
    3.3.3 forgets the connection and still counts it: one fewer can be had from then on, and the
    server keeps its session until the garbage collector comes by.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As of `AsyncConnectionPool`."""
        self._returns: set[asyncio.Task[None]] = set()
        super().__init__(*args, **kwargs)

    async def putconn(self, conn: Connection) -> None:
        """Return `conn`; a task that is cancelled leaves at once, and the return goes on."""
        returning = asyncio.create_task(super().putconn(conn))
        # The loop alone would keep no reference to it.
        self._returns.add(returning)
        returning.add_done_callback(self._returns.discard)
        await asyncio.shield(returning)

    async def _add_to_pool(self, conn: Connection) -> None:
        """Put `conn` where the pool takes from: it has no setting for that."""
        await super()._add_to_pool(conn)
        if self._pool and self._pool[-1] is conn:
            self._pool.rotate(1)
