"""The checkpoint trade-off: the savings and costs of a longer trigger interval.

The real job, with its sink, on a real Postgres, reads files that appear at a fixed pace. After a
while the whole process group gets SIGKILL in the middle of a batch, and the job is started again at
once while files go on appearing. Measured for each interval:

    overhead   the share of the batches' time that a batch costs however many events it holds: a
               straight line through (events, milliseconds) of all batches of all intervals
    replay     the events of the batch that was in flight: they are read and computed again
    recovery   from the SIGKILL to the first batch that is recorded in Postgres; Python, JVM and
               the restored state are in it
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psycopg

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.operator import events
from tests.benchmarks.operator.database import database
from tests.benchmarks.operator.job import Batch, Running, job

FILE_EVERY_S = 0.25
WARM_BATCHES = 3
INTERVALS_AT_LEAST = 3
SPARE_S = 150
"""For two starts of Spark on a slow machine: files must not run out before."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the measurement runs: trigger intervals in milliseconds, events in each file."""

    intervals_ms: Sequence[int]
    seconds: float
    per_file: int = 1_000
    merchants: int = 5_000

    @property
    def events_per_second(self) -> float:
        return self.per_file / FILE_EVERY_S


@dataclass(frozen=True, slots=True)
class Point:
    """What one interval came to."""

    interval_ms: int
    seconds: float
    batches: int
    events: int
    busy_s: float
    cpu_s: float
    checkpoint_bytes: int
    replayed_events: int
    recovery_s: float


def measure(folder: Path, pace: Pace) -> dict[str, object]:
    """Measure every interval, one after another; the report's `tradeoff`."""
    points, seen = [], []
    with database(folder) as dsn:
        for interval_ms in pace.intervals_ms:
            point, batches = _interval(folder / f"{interval_ms}ms", dsn, interval_ms, pace)
            points.append(point)
            seen.append(batches)
            print(
                f"  every {interval_ms / 1000:g} s: {point.batches} batches, after SIGKILL"
                f" {point.replayed_events:,} events again, recorded after {point.recovery_s:.1f} s",
                flush=True,
            )
    fixed_ms, event_us = cost(batch for batches in seen for batch in batches)
    return {
        "events_per_second": pace.events_per_second,
        "batch_fixed_ms": fixed_ms,
        "event_us": event_us,
        "points": [
            {**asdict(point), **_derived(point, batches, fixed_ms)}
            for point, batches in zip(points, seen, strict=True)
        ],
    }


def cost(batches: Iterator[Batch]) -> tuple[float, float]:
    """What a batch costs in milliseconds, and each of its events in microseconds: least squares."""
    rows, ms = np.array([(batch.rows, batch.ms) for batch in batches], np.float64).T
    slope, fixed = np.polyfit(rows, ms, 1)
    return max(float(fixed), 0.0), max(float(slope), 0.0) * 1000


def _derived(point: Point, batches: Sequence[Batch], fixed_ms: float) -> dict[str, float]:
    busy_ms = sum(batch.ms for batch in batches)
    return {
        "overhead": min(len(batches) * fixed_ms / busy_ms, 1.0),
        "busy": busy_ms / 1000 / point.seconds,
        "events_per_busy_s": point.events / busy_ms * 1000,
        "cpu_s_per_million": point.cpu_s / point.events * 1e6,
        "checkpoint_bytes_per_event": point.checkpoint_bytes / point.events,
    }


def _interval(folder: Path, dsn: str, interval_ms: int, pace: Pace) -> tuple[Point, list[Batch]]:
    seconds = max(pace.seconds, INTERVALS_AT_LEAST * interval_ms / 1000)
    stream = f"every-{interval_ms}ms"
    with _feeding(folder, pace, seconds + interval_ms / 1000 * WARM_BATCHES + SPARE_S):
        with job(folder, dsn, stream, interval_ms) as first:
            first.until(lambda: len(first.batches) >= WARM_BATCHES)
            before, cpu, size = (
                len(first.batches),
                processor_seconds(first.process.pid),
                _size(folder),
            )
            began = time.monotonic()
            time.sleep(seconds)
            first.until(lambda: len(first.batches) > before)
            batches = [batch for batch in first.batches[before:] if batch.rows]
            elapsed = time.monotonic() - began
            cpu = processor_seconds(first.process.pid) - cpu
            size = _size(folder) - size
            lost = _kill_in_flight(first)
            killed = time.monotonic()
        with job(folder, dsn, stream, interval_ms) as second, psycopg.connect(dsn) as connection:
            connection.autocommit = True
            second.until(lambda: _recorded(connection, stream) >= lost)
            recovery = time.monotonic() - killed
            second.until(lambda: any(batch.number == lost for batch in second.batches))
            again = next(batch.rows for batch in second.batches if batch.number == lost)
    point = Point(
        interval_ms=interval_ms,
        seconds=elapsed,
        batches=len(batches),
        events=sum(batch.rows for batch in batches),
        busy_s=sum(batch.ms for batch in batches) / 1000,
        cpu_s=cpu,
        checkpoint_bytes=size,
        replayed_events=again,
        recovery_s=recovery,
    )
    return point, batches


def _kill_in_flight(running: Running) -> int:
    """Wait until no batch is in flight, then for the next one, and kill; that batch's number."""
    running.until(lambda: running.in_flight is None, every_s=0.002)
    running.until(lambda: running.in_flight is not None, every_s=0.002)
    number = running.in_flight
    running.kill()
    if number is None:
        raise RuntimeError("the batch ended before the signal")
    return number


def _recorded(connection: psycopg.Connection, stream: str) -> int:
    row = connection.execute(
        "SELECT coalesce(max(batch_id), -1) FROM holdfast.batch WHERE stream = %s", [stream]
    ).fetchone()
    return row[0] if row else -1


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder / "checkpoint"):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue  # Spark renames files under our eyes
    return total


@contextmanager
def _feeding(folder: Path, pace: Pace, seconds: float) -> Iterator[None]:
    """While entered, let an event file appear every FILE_EVERY_S; event time runs with it."""
    pool, into = folder / "pool", folder / "events"
    into.mkdir(parents=True)
    shape = events.Shape(
        files=round(seconds / FILE_EVERY_S),
        per_file=pace.per_file,
        merchants=pace.merchants,
        file_s=10,
    )
    events.write(pool, shape)
    stop = Event()

    def feed() -> None:
        began = time.monotonic()
        for number, path in enumerate(sorted(pool.glob("*.parquet"))):
            if stop.wait(max(0.0, began + number * FILE_EVERY_S - time.monotonic())):
                return
            path.rename(into / path.name)

    feeder = Thread(target=feed, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()
