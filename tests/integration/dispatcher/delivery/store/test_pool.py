"""The dispatcher's pool: whom it lends first, and a return whose task is cancelled."""

import asyncio

from holdfast.dispatcher.delivery.store.pool import Pool


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
            # Another task is in the pool's critical section while the connection is returned.
            async with pool._lock:
                held.set()
                while not pool._lock._waiters:  # noqa: ASYNC110 - asyncio does not signal its queue
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


def test_connection_that_came_back_last_is_lent_first(dsn: str) -> None:
    async def work() -> list[int]:
        pool = Pool(dsn, min_size=3, max_size=3, timeout=10, open=False)
        await pool.open(wait=True)
        lent = []
        try:
            async with pool.connection(), pool.connection() as second:
                lent.append(second.info.backend_pid)
            async with pool.connection() as first:
                lent += [first.info.backend_pid]
            for _ in range(4):
                async with pool.connection() as connection:
                    lent.append(connection.info.backend_pid)
        finally:
            await pool.close()
        return lent

    second, *others = asyncio.run(work())
    assert len(set(others)) == 1
    assert second not in others
