"""pgqueuer on asyncpg, its faster driver. It keeps no order."""

import json
from datetime import timedelta

import asyncpg
import wire
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = wire.SETTINGS.get("batch", 250)


async def _connect() -> asyncpg.Connection:
    return await asyncpg.connect(wire.DSN)


async def load() -> None:
    """Make the tables and add every job."""
    connection = await _connect()
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await connection.execute("SET synchronous_commit = off")
    for some in wire.transactions():
        async with connection.transaction():
            await _add(queries, some)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def _add(queries: Queries, some: list[wire.Job]) -> None:
    payload = [json.dumps({"key": job.key, "body": job.body}).encode() for job in some]
    await queries.enqueue(["webhook"] * len(some), payload, [0] * len(some))


async def work() -> None:
    """Deliver."""
    pgq = PgQueuer(AsyncpgDriver(await _connect()))
    async with wire.aiohttp_session() as session:

        @pgq.entrypoint("webhook")
        async def webhook(job: Job) -> None:
            payload = json.loads(job.payload or b"")
            await wire.post(session, payload["key"], payload["body"])

        wire.ready()
        await pgq.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1))


async def trickle() -> None:
    """Add jobs one by one."""
    queries = Queries(AsyncpgDriver(await _connect()))
    await wire.trickle(lambda job: _add(queries, [job]))


if __name__ == "__main__":
    wire.main(load=load, work=work, trickle=trickle)
