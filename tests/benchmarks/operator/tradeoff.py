"""The interval sweep: the savings and costs of a longer trigger interval.

The real job, with its sink, on a real Postgres. A batch gets the events of one interval at a fixed
rate, and the next one begins when it has ended: the time between two batches, in which the job only
waits, is not spent. What depends on it is computed: a batch of s seconds every i seconds keeps the
job busy for s/i of the time. Then the whole process group gets SIGKILL in the middle of a batch,
and the job is started again at once. For each interval:

    busy        the time of a batch by the interval; above 1 the job falls behind
    overhead    the share of the batches' time that a batch costs however many events it holds: a
                straight line through (events, seconds) of all batches of all intervals
    checkpoint  the share of the batches' time in Spark's plan, the commit of the state and Spark's
    bytes       what the batches added to the checkpoint
    replay      the events of the batch in flight: they are read and computed again
    recovery    from the SIGKILL until that batch is committed; Python, JVM and the state are in it
"""

import os
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.operator import events
from tests.benchmarks.operator.database import database
from tests.benchmarks.operator.job import Batch, Running, job, kill_in_flight

FILE_EVERY_S = 0.5
WARM_BATCHES = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between batches, each with how many batches are measured; the rate of events."""

    batches: dict[float, int]
    events_per_second: int = 4_000
    merchants: int = 5_000


def measure(folder: Path, pace: Pace) -> dict[str, Any]:
    """Measure every interval, one after another; the report's `tradeoff`."""
    points, seen = [], []
    with database(folder) as dsn:
        for interval_s in pace.batches:
            point, batches = _interval(folder / f"{interval_s:g}s", dsn, interval_s, pace)
            points.append(point)
            seen += batches
            print(
                f"  every {interval_s:g} s: {point['batches']} batches, after SIGKILL"
                f" {point['replayed_events']:,} events again in {point['recovery_s']:.1f} s",
                flush=True,
            )
    fixed_s, event_s = cost(seen)
    for point in points:
        point["overhead"] = min(fixed_s / point["batch_s"], 1.0)
    return {
        "events_per_second": pace.events_per_second,
        "merchants": pace.merchants,
        "batch_fixed_ms": fixed_s * 1e3,
        "event_us": event_s * 1e6,
        "points": points,
    }


def cost(batches: Iterable[Batch]) -> tuple[float, float]:
    """Seconds of a batch without events, and seconds an event: least squares.

    Every number of events counts the same, by its median: the many short batches would else decide.
    """
    sizes: dict[int, list[float]] = {}
    for batch in batches:
        sizes.setdefault(batch.rows, []).append(batch.seconds)
    rows = np.array(list(sizes), np.float64)
    seconds = np.array([statistics.median(each) for each in sizes.values()])
    slope, fixed = np.polyfit(rows, seconds, 1)
    return max(float(fixed), 0.0), max(float(slope), 0.0)


def _interval(
    folder: Path, dsn: str, interval_s: float, pace: Pace
) -> tuple[dict[str, Any], list[Batch]]:
    stream = f"every-{interval_s:g}s"
    files = max(round(interval_s / FILE_EVERY_S), 1)
    counted = pace.batches[interval_s]
    _write_events(folder, files * (WARM_BATCHES + counted + 2), pace)
    with job(folder, dsn, stream, files) as first:
        first.until(lambda: _with_rows(first) >= WARM_BATCHES)
        cpu, before = processor_seconds(first.process.pid), written_bytes(folder / "checkpoint")
        skipped = len(first.batches)
        first.until(lambda: _with_rows(first) >= WARM_BATCHES + counted)
        batches = first.batches[skipped:]
        cpu = processor_seconds(first.process.pid) - cpu
        after = written_bytes(folder / "checkpoint")
        killed = kill_in_flight(first)
    with job(folder, dsn, stream, files) as second:
        second.until(lambda: second.batches)
        again = second.batches[0]
    rows = sum(batch.rows for batch in batches)
    busy_s = sum(batch.seconds for batch in batches)
    intervals = sum(1 for batch in batches if batch.rows)
    point = {
        "interval_s": interval_s,
        "batches": intervals,
        "events": rows,
        "open_ids": round((WARM_BATCHES + counted / 2) * rows / intervals),
        "batch_s": busy_s / intervals,
        "busy": busy_s / intervals / interval_s,
        "checkpoint": sum(batch.checkpoint_s for batch in batches) / busy_s,
        "cpu_s_per_million": cpu / rows * 1e6,
        "bytes_per_event": {kind: (after[kind] - before[kind]) / rows for kind in after},
        "replayed_events": again.rows,
        "recovery_s": again.ended - killed,
        "replay_s": again.seconds,
    }
    return point, [batch for batch in batches if batch.rows]


def _write_events(folder: Path, files: int, pace: Pace) -> None:
    per_file = round(pace.events_per_second * FILE_EVERY_S)
    shape = events.Shape(files, per_file, pace.merchants, file_s=FILE_EVERY_S)
    events.write(folder / "events", shape)


def _with_rows(running: Running) -> int:
    return sum(1 for batch in running.batches if batch.rows)


def written_bytes(checkpoint: Path) -> Counter[str]:
    """Bytes of the checkpoint now: `changelog`s of the state, its `snapshot`s, and the `logs`."""
    sizes = Counter({"changelog": 0, "snapshot": 0, "logs": 0})
    for root, _, names in os.walk(checkpoint):
        for name in names:
            in_state = "/state/" in f"{root}/"
            kind = "logs" if not in_state else "changelog" if ".changelog" in name else "snapshot"
            try:
                sizes[kind] += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue  # Spark renames files under our eyes
    return sizes
