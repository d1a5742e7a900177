"""The limit of a client: it signs and posts, and does nothing else."""

import asyncio
from typing import Any

import wire


async def work() -> None:
    """Post every job on 64 connections."""
    jobs = wire.jobs()
    requests = ((wire.headers(job.key, job.body), job.body.encode()) for job in jobs)
    run = {"aiohttp": _aiohttp, "pyreqwest": _pyreqwest, "httpx": _httpx}[wire.OPTION]
    await run(requests)


async def _aiohttp(requests: Any) -> None:
    async with wire.aiohttp_session() as session:

        async def one() -> None:
            for headers, body in requests:
                async with session.post(
                    wire.URL, data=body, headers=headers, allow_redirects=False
                ) as response:
                    await response.read()

        wire.ready()
        await asyncio.gather(*(one() for _ in range(wire.CONNECTIONS)))


async def _pyreqwest(requests: Any) -> None:
    from pyreqwest.client import ClientBuilder

    async with ClientBuilder().no_proxy().build() as client:

        async def one() -> None:
            for headers, body in requests:
                response = (
                    await client.post(wire.URL).headers(headers).body_bytes(body).build().send()
                )
                await response.bytes()

        wire.ready()
        await asyncio.gather(*(one() for _ in range(wire.CONNECTIONS)))


async def _httpx(requests: Any) -> None:
    import httpx

    limits = httpx.Limits(
        max_connections=wire.CONNECTIONS, max_keepalive_connections=wire.CONNECTIONS
    )
    async with httpx.AsyncClient(limits=limits, timeout=wire.TOTAL_S, trust_env=False) as client:

        async def one() -> None:
            for headers, body in requests:
                await client.post(wire.URL, content=body, headers=headers)

        wire.ready()
        await asyncio.gather(*(one() for _ in range(wire.CONNECTIONS)))


if __name__ == "__main__":
    wire.main(work=work)
