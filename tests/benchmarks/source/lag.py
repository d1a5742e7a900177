"""Lag: how long a record waits until its batch is recorded, at a steady rate and after an outage.

Each event is written with the time at which that happens. A batch is recorded after its decisions
are in the outbox, so the lag of a record is the time of that commit less its own.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker
from tests.benchmarks.operator.database import database
from tests.benchmarks.source.live import BASE, INTERVAL, Load, event_clock, latencies, reading
from tests.benchmarks.source.sizes import Backlog, Sizes

PER_BATCH = 100_000
WARM_BATCHES = 4
CAUGHT_UP_S = 3.0
"""The job has caught up when it is behind by no more than so many seconds of traffic."""


def steady(folder: Path, broker: Broker, sizes: Sizes) -> dict[str, Any]:
    """Measure one job at each rate, one after the other; the report's `steady`."""
    topics.make(broker.admin(), "steady", sizes.partitions)
    load, points = Load(broker.bootstrap_servers, "steady", sizes.partitions), []
    with (
        database(folder) as dsn,
        reading(folder, dsn, broker.bootstrap_servers, "steady", "steady") as job,
    ):
        for _ in range(WARM_BATCHES):
            load.steadily(sizes.steady[0].events_per_second, _now, lambda passed: passed < 1)
            job.until_read(load.ends)
        for each in sizes.steady:
            begin, seen = load.ends, len(job.commits())
            load.steadily(each.events_per_second, _now, lambda passed, e=each: passed < e.seconds)
            job.until_read(load.ends)
            lag = latencies(load, job.commits(seen - 1), begin)
            points.append(
                {
                    "events_per_second": each.events_per_second,
                    "events": len(lag),
                    "batches": len(job.commits()) - seen,
                    **dict(zip(("median_s", "p99_s", "max_s"), _percentiles(lag), strict=True)),
                }
            )
            print(
                f"  {each.events_per_second:>7,} events/s: lag {points[-1]['median_s']:.2f} s,"
                f" p99 {points[-1]['p99_s']:.2f} s",
                flush=True,
            )
    return {"interval": INTERVAL, "partitions": sizes.partitions, "points": points}


def _now(_passed: float) -> datetime:
    return datetime.now(UTC)


def _percentiles(lag: np.ndarray) -> list[float]:
    return [float(found) for found in np.percentile(lag, [50, 99, 100])]


def catch_up(folder: Path, broker: Broker, sizes: Sizes) -> dict[str, Any]:
    """Measure a job that begins behind, while the traffic goes on; the report's `catch_up`."""
    behind, servers = sizes.backlog, broker.bootstrap_servers
    topics.make(broker.admin(), "backlog", sizes.partitions)
    load = Load(servers, "backlog", sizes.partitions)
    _fill(load, behind)
    waiting, limit = sum(load.ends.values()), str(PER_BATCH)
    options = ("--max-offsets-per-trigger", limit, "--idle-timeout", "0")
    began = time.time()
    with (
        database(folder) as dsn,
        reading(folder, dsn, servers, "backlog", "backlog", *options) as job,
    ):

        def goes_on(_passed: float) -> bool:
            ended = job.process.process.poll()
            if ended is not None:
                raise RuntimeError(f"the job ended with {ended}: {job.process.said[-2000:]}")
            unread = sum(load.ends.values()) - sum(job.newest().values())
            return unread > behind.events_per_second * CAUGHT_UP_S

        end = event_clock(BASE, behind.speed)(behind.event_seconds / behind.speed)
        clock = event_clock(end, behind.speed)
        load.steadily(behind.events_per_second, clock, goes_on)
        caught_up = time.time()
        commits = job.commits()
        late = _late(dsn)
    read, first = sum(commits[-1].ends.values()), commits[0].at
    seconds = commits[-1].at - first
    return {
        "backlog": waiting,
        "event_seconds": behind.event_seconds,
        "events_per_second": behind.events_per_second,
        "per_batch": PER_BATCH,
        "read": read,
        "first_commit_s": first - began,
        "caught_up_s": caught_up - began,
        "rate": (read - sum(commits[0].ends.values())) / seconds if seconds else 0.0,
        "late": late,
    }


def _fill(load: Load, behind: Backlog) -> None:
    """Write the backlog as it would have arrived."""
    clock, step = event_clock(BASE, behind.speed), behind.events_per_second // 20
    for written in range(0, behind.events, step):
        load.write(min(step, behind.events - written), clock(written / behind.events_per_second))
        if written // step % 100 == 0:
            load.flush()
    load.flush()


def _late(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM holdfast.late_event WHERE reason = 'late'"
        ).fetchall()
    return int(count)
