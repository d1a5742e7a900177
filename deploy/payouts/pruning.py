"""Deletes keys older than the inbox's window while the service runs, in limited transactions.

Safety does not depend on it: a key kept longer still works, and a repeat of a deleted key is
refused by its subject's sequence.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
from psycopg_pool import PoolTimeout

from holdfast.deploy.payouts.database import Pool
from holdfast.receiver import PRUNE_MAX, Inbox

PRUNE_SECONDS = 3600.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def pruning(pool: Pool, inbox: Inbox) -> AsyncIterator[None]:
    """Prune at the start and then every hour, until the block ends."""
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
            _log.warning("pruning keys failed; retry in an hour: %s", type(error).__name__)
        await asyncio.sleep(PRUNE_SECONDS)


async def prune_all(pool: Pool, inbox: Inbox, *, limit: int = PRUNE_MAX) -> int:
    """Delete all keys older than the window, `limit` per transaction; return their number."""
    forgotten = 0
    while True:
        async with pool.connection() as connection:
            pruned = await inbox.prune(connection, limit=limit)
        forgotten += pruned
        if pruned < limit:
            return forgotten
