"""The limit of our own client: it signs and posts, and does nothing else."""

import asyncio
from ipaddress import ip_network

import wire

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Response


async def work() -> None:
    """Post every job on 64 connections."""
    target = Target(1, wire.URL, (ip_network("127.0.0.0/8"),), wire.TOTAL_S, wire.TOTAL_S)
    jobs = wire.jobs()
    requests = (
        Request(tuple(wire.headers(job.key, job.body).items()), job.body.encode()) for job in jobs
    )
    transport = AsyncioTransport()

    async def one() -> None:
        for request in requests:
            answer = await transport.send(target, request, Progress())
            if not isinstance(answer, Response) or answer.status != 200:
                raise RuntimeError(f"the receiver answered {answer}")

    wire.ready()
    await asyncio.gather(*(one() for _ in range(wire.CONNECTIONS)))
    await transport.close()


if __name__ == "__main__":
    wire.main(work=work)
