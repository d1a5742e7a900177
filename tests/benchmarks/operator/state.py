"""The growth of state, checkpoint and memory with the open ids: one window that never closes."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.common.processes import Peak, driver_memory
from tests.benchmarks.common.runner import Bench
from tests.benchmarks.common.trees import HERE
from tests.benchmarks.operator import events, ours

CONTENT = "user_map_value.content"
PARTS = {"ids": CONTENT, "windows": CONTENT, "group": "value.merchants"}
"""State variables, and what of them grows."""

ON_PAPER = 100_000_000


def measure(bench: Bench[Any]) -> None:
    """Measure the points in a process of its own; the report's `state`."""
    folder, counts = bench.folder / "growth", list(bench.size.state_files)
    events.write(
        folder, events.Shape(counts[-1], bench.size.per_file, bench.size.merchants, file_s=100)
    )
    points = HERE.call("tests.benchmarks.operator.state:points", str(folder), counts)
    lines = per_million(points)
    bench.found["state"] = {"points": points, "lines": lines, "on_paper": ON_PAPER}
    bench.table(
        "State and memory by open ids, MB; the last column is extrapolated, not measured",
        [
            {
                "": name,
                **{f"{p['open_ids'] / 1e6:.2f} M ids": p[name] / 1e6 for p in points},
                "per M ids": line["per_million"] / 1e6,
                f"{ON_PAPER / 1e6:.0f} M": line["extrapolated"] / 1e6,
            }
            for name, line in lines.items()
        ],
    )


def points(source: str, counts: list[int]) -> list[dict[str, int]]:
    """Let the files appear up to each point, run the job until it has read them, and look."""
    os.environ.update(spark_environment())
    spark, seen, paths = ours.create(), [], sorted(Path(source).glob("*.parquet"))
    # RocksDB's threads may still write while the JVM ends.
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as name:
        into, checkpoint = Path(name) / "events", Path(name) / "checkpoint"
        into.mkdir()
        for count in counts:
            for path in paths[len(list(into.iterdir())) : count]:
                (into / path.name).hardlink_to(path)
            with Peak(driver_memory, 0.5) as peak:
                query = ours.run(spark, str(into), str(checkpoint), lambda df, _id: _drop(df))
                query.awaitTermination()
            progress = [batch for batch in query.recentProgress if batch.numInputRows][-1]
            ids = pq.read_table(into, columns=["event_id"])["event_id"]
            files = (path for path in (checkpoint / "state").rglob("*") if path.is_file())
            point = {
                "open_ids": pc.count_distinct(ids).as_py(),
                "written_bytes": sum(path.stat().st_size for path in files),
                "java_peak_bytes": peak.most["java"],
                "python_peak_bytes": peak.most["python"],
                "last_batch_ms": progress.durationMs["triggerExecution"],
            }
            seen.append((query.lastProgress.batchId, point))
        # Through Spark's own reader, as the state was after each of them.
        for batch_id, point in seen:
            for variable, column in PARTS.items():
                reader = spark.read.format("statestore").option("stateVarName", variable)
                rows = reader.option("batchId", batch_id).load(str(checkpoint))
                sums = rows.agg(F.sum(F.octet_length(column))).collect()
                point[f"{variable}_bytes"] = sums[0][0] or 0
        spark.stop()
    return [point for _, point in seen]


def per_million(points: list[dict[str, int]]) -> dict[str, dict[str, float]]:
    """A straight line through the points for each quantity, and what it says of ON_PAPER ids."""
    millions, lines = np.array([point["open_ids"] for point in points]) / 1e6, {}
    for name in (name for name in points[0] if name.endswith("_bytes")):
        values = np.array([point[name] for point in points], np.float64)
        slope, start = np.polyfit(millions, values, 1)
        slope = max(slope, 0.0)  # what does not grow falls a little by chance
        lines[name] = {
            "per_million": float(slope),
            "at_none": float(start),
            "extrapolated": float(start + slope * ON_PAPER / 1e6),
        }
    return lines


def _drop(df: Any) -> None:
    df.toArrow()
