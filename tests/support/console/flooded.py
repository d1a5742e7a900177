"""A program: 200 requests at once to a receiver that answers each with a gigabyte; prints its RSS.

`python -m tests.support.console.flooded ENGINE PORT`
"""

import asyncio
import sys
from ipaddress import ip_network
from threading import Event, Thread
from typing import get_args

import psutil

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.engines import EngineName, open_transport
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import RESPONSE_BYTES_READ_MAX, Answer, Response
from tests.support.dispatch.sender import body

REQUESTS = 200
SAMPLE_S = 0.01


async def flood(engine: EngineName, port: str) -> list[Answer]:
    """Send all at once; returns their answers."""
    transport = open_transport(engine)
    target = Target(1, f"http://127.0.0.1:{port}/", (ip_network("127.0.0.0/8"),), 30, 60)
    request = Request((("content-type", "application/json"),), body())
    answers = await asyncio.gather(
        *(transport.send(target, request, Progress()) for _ in range(REQUESTS))
    )
    await transport.close()
    return answers


def main() -> None:
    """Print the most bytes of memory that this process had, and how many answers were cut."""
    engine: EngineName = next(name for name in get_args(EngineName) if name == sys.argv[1])
    this, over, most = psutil.Process(), Event(), [0]

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            most[0] = max(most[0], this.memory_info().rss)

    watcher = Thread(target=watch)
    watcher.start()
    answers = asyncio.run(flood(engine, sys.argv[2]))
    over.set()
    watcher.join()
    cut = sum(
        isinstance(answer, Response) and len(answer.body) == RESPONSE_BYTES_READ_MAX
        for answer in answers
    )
    sys.stdout.write(f"{most[0]} {cut}\n")


if __name__ == "__main__":
    main()
