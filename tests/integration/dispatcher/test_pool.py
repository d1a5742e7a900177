"""The dispatcher's pool of connections, when the task that returns one is cancelled."""

import asyncio

from dispatcher.store.pool import Pool


def test_connection_whose_return_is_cancelled_is_lent_again(dsn: str) -> None:
    async def work() -> None:
        pool = Pool(dsn, min_size=1, max_size=1, timeout=10, open=False)
        await pool.open()
        try:
            used = asyncio.Event()

            async def use() -> int:
                async with pool.connection() as connection:
                    used.set()
                    await held.wait()
                    return connection.info.backend_pid

            held = asyncio.Event()
            user = asyncio.create_task(use())
            await used.wait()
            # Somebody else is in the pool's critical section while the connection comes back.
            async with pool._lock:
                held.set()
                while not pool._lock._waiters:  # noqa: ASYNC110 - asyncio tells nobody of its queue
                    await asyncio.sleep(0)
                user.cancel()
                (ended,) = await asyncio.gather(user, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError)
            async with pool.connection() as connection:
                await connection.execute("SELECT 1")
            assert pool.get_stats()["pool_available"] == 1
        finally:
            await pool.close()

    asyncio.run(work())
