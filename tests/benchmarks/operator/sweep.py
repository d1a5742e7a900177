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
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.runner import Bench
from tests.benchmarks.operator import events
from tests.benchmarks.operator.job import Batch, job

FILE_EVERY_S = 0.5
WARM_BATCHES = 3


def measure(bench: Bench[Any]) -> None:
    """Measure every interval, one after another; the report's `tradeoff`."""
    points, seen = [], []
    with bench.server.fresh() as dsn:
        for interval_s, counted in zip(bench.size.intervals, bench.size.batches, strict=True):
            folder = bench.folder / f"every-{interval_s:g}s"
            point, batches = _interval(folder, dsn, interval_s, counted, bench.size)
            points.append(point)
            seen += batches
            bench.say(
                f"every {interval_s:g} s: {point['batches']} batches, after SIGKILL"
                f" {point['replayed_events']:,} events again in {point['recovery_s']:.1f} s"
            )
    fixed_s, event_s = cost(seen)
    for point in points:
        point["overhead"] = min(fixed_s / point["batch_s"], 1.0)
    bench.found["tradeoff"] = {
        "events_per_second": bench.size.events_per_second,
        "merchants": bench.size.sweep_merchants,
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
    folder: Path, dsn: str, interval_s: float, counted: int, size: Any
) -> tuple[dict[str, Any], list[Batch]]:
    files, per_file = max(round(interval_s / FILE_EVERY_S), 1), size.events_per_second / 2
    count = files * (WARM_BATCHES + counted + 2)
    shape = events.Shape(count, round(per_file), size.sweep_merchants, file_s=FILE_EVERY_S)
    events.write(folder / "events", shape)
    with job(folder, dsn, folder.name, files) as first:
        first.job.until(lambda: len(first.with_rows) >= WARM_BATCHES)
        cpu, before = processor_seconds(first.pid), written_bytes(folder / "checkpoint")
        skipped = len(first.with_rows)
        first.job.until(lambda: len(first.with_rows) >= WARM_BATCHES + counted)
        batches = first.with_rows[skipped:]
        cpu = processor_seconds(first.pid) - cpu
        after = written_bytes(folder / "checkpoint")
        killed = first.kill_in_flight()
    with job(folder, dsn, folder.name, files) as second:
        second.job.until(lambda: second.batches)
        again = second.batches[0]
    rows = sum(batch.rows for batch in batches)
    busy_s = sum(batch.seconds for batch in batches)
    point = {
        "interval_s": interval_s,
        "batches": len(batches),
        "events": rows,
        "open_ids": round((WARM_BATCHES + counted / 2) * rows / len(batches)),
        "batch_s": busy_s / len(batches),
        "busy": busy_s / len(batches) / interval_s,
        "checkpoint": sum(batch.checkpoint_s for batch in batches) / busy_s,
        "cpu_s_per_million": cpu / rows * 1e6,
        "bytes_per_event": {kind: (after[kind] - before[kind]) / rows for kind in after},
        "replayed_events": again.rows,
        "recovery_s": again.ended - killed,
        "replay_s": again.seconds,
    }
    return point, batches


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
