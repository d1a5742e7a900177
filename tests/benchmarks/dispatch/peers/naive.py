"""What people write: a table, FOR UPDATE SKIP LOCKED, a batch of requests at once, one UPDATE."""

import asyncio
from typing import Any

import psycopg
import wire

BATCH = wire.SETTINGS.get("batch", wire.CONNECTIONS)
IDLE_S = 0.1

TABLE = """
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, body text NOT NULL,
    sent_at timestamptz, status integer
)
"""
INDEX = "CREATE INDEX ix_outbox_waiting ON outbox (id) WHERE sent_at IS NULL"
ADD = "INSERT INTO outbox (key, body) VALUES (%s, %s)"
TAKE = """
SELECT id, key, body FROM outbox WHERE sent_at IS NULL ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
DONE = """
UPDATE outbox SET sent_at = now(), status = done.status
FROM unnest(%s::bigint[], %s::integer[]) AS done (id, status) WHERE outbox.id = done.id
"""


async def load() -> None:
    """Make the table and add every job."""
    async with await psycopg.AsyncConnection.connect(wire.DSN, autocommit=True) as connection:
        await connection.execute(TABLE)
        await connection.execute(INDEX)
        await connection.execute("SET synchronous_commit = off")
        for some in wire.transactions():
            async with connection.transaction():
                await connection.cursor().executemany(ADD, [(job.key, job.body) for job in some])
        await connection.execute("VACUUM ANALYZE outbox")


async def work() -> None:
    """Deliver batch after batch."""
    client = await _httpx() if wire.OPTION == "httpx" else await _aiohttp()
    async with await psycopg.AsyncConnection.connect(wire.DSN) as connection:
        wire.ready()
        while True:
            async with connection.transaction():
                rows = await (await connection.execute(TAKE, [BATCH])).fetchall()
                if rows:
                    sent = await asyncio.gather(*(client(key, body) for _, key, body in rows))
                    await connection.execute(DONE, [[row[0] for row in rows], sent])
            if not rows:
                await asyncio.sleep(IDLE_S)


async def _httpx() -> Any:
    import httpx

    limits = httpx.Limits(
        max_connections=wire.CONNECTIONS, max_keepalive_connections=wire.CONNECTIONS
    )
    client = httpx.AsyncClient(limits=limits, timeout=wire.TOTAL_S)

    async def send(key: str, body: str) -> int:
        response = await client.post(
            wire.URL, content=body.encode(), headers=wire.headers(key, body)
        )
        return response.status_code

    return send


async def _aiohttp() -> Any:
    session = wire.aiohttp_session()

    async def send(key: str, body: str) -> int:
        return await wire.post(session, key, body)

    return send


async def trickle() -> None:
    """Add jobs one by one."""
    async with await psycopg.AsyncConnection.connect(wire.DSN, autocommit=True) as connection:
        await wire.trickle(lambda job: connection.execute(ADD, (job.key, job.body)))


if __name__ == "__main__":
    wire.main(load=load, work=work, trickle=trickle)
