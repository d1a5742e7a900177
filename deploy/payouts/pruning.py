"""Keys older than the inbox's window are forgotten while the service runs, some at a time.

Nothing depends on it: a key that stays longer still does its work, and one that was forgotten meets
the fence of its subject.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
from psycopg_pool import PoolTimeout

from deploy.payouts.database import Pool
from dispatcher.receiver import PRUNE_MAX, Inbox

PRUNE_SECONDS = 3600.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def pruning(pool: Pool, inbox: Inbox) -> AsyncIterator[None]:
    """Prune at the start and then each hour, until the block ends."""
    if inbox.window is None:
        yield
        return
    task = asyncio.create_task(_prune_for_ever(pool, inbox))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _prune_for_ever(pool: Pool, inbox: Inbox) -> None:
    while True:
        try:
            await prune_all(pool, inbox)
        except (psycopg.Error, PoolTimeout) as error:
            _log.warning("no keys were pruned, the next hour tries again: %s", type(error).__name__)
        await asyncio.sleep(PRUNE_SECONDS)


async def prune_all(pool: Pool, inbox: Inbox, *, limit: int = PRUNE_MAX) -> int:
    """Forget every key older than the window, `limit` a transaction; return how many."""
    forgotten = 0
    while True:
        async with pool.connection() as connection:
            pruned = await inbox.prune(connection, limit=limit)
        forgotten += pruned
        if pruned < limit:
            return forgotten
