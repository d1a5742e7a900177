"""What the Python peers share: jobs from a file, the signature, the HTTP clients.

Each peer is a program, `python PEER.py load|work|trickle`, that knows nothing of Holdfast:

    load      makes its tables and adds every job, so many in a transaction
    work      prints `ready`, then delivers until it is ended
    trickle   adds the jobs one by one, with pauses, and prints when each was committed
"""

import base64
import hashlib
import hmac
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

URL = os.environ["BENCH_URL"]
DSN = os.environ["BENCH_DSN"]
CONNECTIONS = int(os.environ["BENCH_CONNECTIONS"])
TRANSACTION = int(os.environ["BENCH_TRANSACTION"])
OPTION = os.environ["BENCH_OPTION"]
SETTINGS: dict[str, Any] = json.loads(os.environ["BENCH_SETTINGS"])
SECRET = base64.b64decode(os.environ["BENCH_SECRET"].removeprefix("whsec_"))
TOTAL_S = 30.0


class Job(NamedTuple):
    """One delivery."""

    subject: str
    key: str
    body: str


def jobs() -> list[Job]:
    """Every job of the run, in the order in which it is added."""
    with Path(os.environ["BENCH_JOBS"]).open() as lines:
        return [Job(**json.loads(line)) for line in lines]


def transactions() -> Iterator[list[Job]]:
    """The jobs of each transaction."""
    all_jobs = jobs()
    for first in range(0, len(all_jobs), TRANSACTION):
        yield all_jobs[first : first + TRANSACTION]


def headers(key: str, body: str) -> dict[str, str]:
    """The headers of one attempt, signed now."""
    moment = str(int(time.time()))
    signed = f"{key}.{moment}.{body}".encode()
    signature = base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    return {
        "content-type": "application/json",
        "webhook-id": key,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{signature}",
        "idempotency-key": f'"{key}"',
    }


def aiohttp_session() -> Any:
    """Return a session with as many connections as there may be."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS),
        timeout=aiohttp.ClientTimeout(total=TOTAL_S),
        auto_decompress=False,
    )


async def post(session: Any, key: str, body: str) -> int:
    """Deliver with aiohttp; raises for anything but 2xx."""
    async with session.post(
        URL, data=body.encode(), headers=headers(key, body), allow_redirects=False
    ) as response:
        response.raise_for_status()
        await response.read()
        return int(response.status)


def ready() -> None:
    """Say that the work begins now."""
    print("ready", flush=True)


async def trickle(add: Callable[[Job], Awaitable[object]]) -> None:
    """Add the jobs one by one; prints the moment of each commit as JSON."""
    import asyncio

    times = {}
    draw = random.Random(1)  # noqa: S311 - pauses, not a secret
    for job in jobs():
        await asyncio.sleep(draw.uniform(0.3, 0.9))
        await add(job)
        times[job.key] = time.monotonic()
    print(json.dumps(times), flush=True)


def main(**modes: Callable[[], Any]) -> None:
    """Run the mode that the command line names."""
    uvloop.run(modes[sys.argv[1]]())
