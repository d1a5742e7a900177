"""The dispatcher with a large backlog: its rate and its memory."""

import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from tests.benchmarks.common.database import fresh
from tests.benchmarks.dispatch.cases import CASES
from tests.benchmarks.dispatch.programs import receiver, working
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.dispatch.waiting import fill
from tests.benchmarks.sink.rounds import checkpoint
from tests.benchmarks.sink.server import Server

LOOK_S: Final = 0.1

_AGED: Final = """
UPDATE holdfast.lane
SET due_at = now() - random() * interval '1 hour', head_created_at = now() - interval '2 hours'
"""

_RATE: Final = "UPDATE holdfast.endpoint SET rate_per_second = %s"

_DOWN: Final = """
UPDATE holdfast.endpoint_pace
SET breaker = 'open', breaker_since = now() - interval '1 hour', breaker_until = now(),
    breaker_reason = 'the outage of the benchmark', openings = 8
"""


def outage(sizes: Sizes, server: Server) -> dict[str, Any]:
    """Drain what has gathered in an hour in which the endpoint was away.

    The clock is moved instead of waited for: lanes are due since up to an hour, and the breaker
    has been open and may be tried again now.
    """
    count, rate = sizes.outage_entries, sizes.outage_rate
    with fresh(server.dsn) as dsn:
        fill(dsn, count, sizes.connections)
        with psycopg.connect(dsn, autocommit=True) as db:
            db.execute(_AGED)
            db.execute(_RATE, [rate])
            db.execute(_DOWN)
            db.execute("VACUUM (ANALYZE) holdfast.lane")
        checkpoint(server.dsn)
        limit_s = sizes.limit_seconds + 4 * count / rate
        watched = _watch(dsn, sizes, count, limit_s)
    received = watched.pop("received")
    return {
        **watched,
        "entries": count,
        "rate_per_second": rate,
        "delivered": received["distinct"],
        "most_in_a_second": received["most_in_a_second"],
        "inversions": received["inversions"],
        "seconds": received["last_s"] - received["first_s"],
    }


def memory(sizes: Sizes, server: Server) -> dict[str, Any]:
    """Return the most memory that the dispatcher had while a million entries waited."""
    with fresh(server.dsn) as dsn:
        fill(dsn, sizes.memory_entries, sizes.connections)
        checkpoint(server.dsn)
        watched = _watch(dsn, sizes, sizes.memory_entries, sizes.memory_seconds)
    received = watched.pop("received")
    return {**watched, "entries": sizes.memory_entries, "delivered": received["distinct"]}


def _watch(dsn: str, sizes: Sizes, count: int, limit_s: float) -> dict[str, Any]:
    """Let it deliver until all has arrived or the time is over."""
    peak = 0
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, receiver() as to:
        with working(CASES["holdfast"], dsn, to, sizes.connections, Path(folder)) as work:
            process = psutil.Process(work.process.pid)
            end = time.monotonic() + limit_s
            while time.monotonic() < end and to.figures()["distinct"] < count:
                peak = max(peak, process.memory_info().rss)
                time.sleep(LOOK_S)
        return {"peak_rss_bytes": peak, "received": to.figures()}
