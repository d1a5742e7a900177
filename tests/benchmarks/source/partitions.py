"""Partitions that differ: two in time, one idle, one behind the others in the time of its events.

A round is a minute of event time, and the next one begins when the job has read it. There is one
watermark over all partitions, so the idle one holds nothing back, and what the slow one has is late
where `--watermark-delay` is shorter than it is behind. The price of a longer delay is shown beside
it: how long after its end a window is published. In the end all fall silent, and only the idle
clock closes what is open.
"""

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker
from tests.benchmarks.operator.database import database
from tests.benchmarks.source.live import BASE, Load, Reading, reading
from tests.benchmarks.source.sizes import Sizes, Slow

PARTITIONS = 4
IN_TIME, SLOW = (0, 1), 3
"""The third one is idle."""


def measure(folder: Path, broker: Broker, sizes: Sizes) -> dict[str, Any]:
    """Measure each delay with a topic and a job of its own; the report's `partitions`."""
    slow, points = sizes.slow, []
    with database(folder) as dsn:
        for delay in slow.delays:
            points.append(_delay(folder / f"{delay}s", broker, dsn, slow, delay))
            print(f"  delay {delay} s: {points[-1]['late']} late", flush=True)
    return {
        "behind_s": slow.behind_s,
        "idle_timeout_s": slow.idle_timeout_s,
        "events_a_round": slow.events_a_round,
        "rounds": slow.rounds,
        "points": points,
    }


def _delay(folder: Path, broker: Broker, dsn: str, slow: Slow, delay: int) -> dict[str, Any]:
    name = f"delay-{delay}"
    topics.make(broker.admin(), name, PARTITIONS)
    load = Load(broker.bootstrap_servers, name, PARTITIONS)
    options = ("--watermark-delay", f"{delay}s", "--idle-timeout", f"{slow.idle_timeout_s}s")
    published: dict[datetime, float] = {}
    with (
        reading(folder, dsn, broker.bootstrap_servers, name, name, *options) as job,
        psycopg.connect(dsn, autocommit=True) as database_,
    ):
        for number in range(slow.rounds):
            _write_round(load, slow, number)
            job.until_read(load.ends)
            until = BASE + timedelta(minutes=number + 1)
            for end in _windows(database_, name):
                published.setdefault(end, (until - end).total_seconds())
        by_events = dict(published)
        silent_s = _seconds_until_silence_closes(job, database_, name, slow)
        late = _late(database_, name)
    in_time = [seconds for end, seconds in by_events.items() if end > BASE]
    return {
        "delay_s": delay,
        "late": late,
        "slow_events": slow.rounds * slow.events_a_round,
        "published_after_s": max(in_time) if in_time else None,
        "silence_closed_after_s": silent_s,
    }


def _write_round(load: Load, slow: Slow, number: int) -> None:
    """Write a minute of events into two partitions, and an earlier one into the slow one."""
    steps = 20
    for step in range(steps):
        at = BASE + timedelta(minutes=number, seconds=60 * step / steps)
        for partition in IN_TIME:
            load.write(slow.events_a_round // steps, at, partition)
        load.write(slow.events_a_round // steps, at - timedelta(seconds=slow.behind_s), SLOW)
    load.flush()


def _seconds_until_silence_closes(
    job: Reading, database_: psycopg.Connection, stream: str, slow: Slow
) -> float:
    """Return how long after the last batch with events the window of the last event is there."""
    began = job.commits()[-1].at
    last = BASE + timedelta(minutes=slow.rounds)
    quarter = timedelta(minutes=15)
    end = BASE + quarter * -(-(last - BASE) // quarter)
    job.process.until(lambda: end in _windows(database_, stream))
    return time.time() - began


def _windows(database_: psycopg.Connection, stream: str) -> list[datetime]:
    found = database_.execute(
        "SELECT DISTINCT window_end FROM holdfast.exposure_window WHERE stream = %s", [stream]
    )
    return [end for (end,) in found]


def _late(database_: psycopg.Connection, stream: str) -> int:
    [(count,)] = database_.execute(
        "SELECT count(*) FROM holdfast.late_event WHERE stream = %s AND reason = 'late'", [stream]
    ).fetchall()
    return int(count)
