"""The growth of state, checkpoint and memory with the open ids; a separate process.

`python -m tests.benchmarks.operator.growth EVENTS FILES...`: EVENTS is a directory of event files
that all lie in one window, so that no id is ever forgotten; after so many FILES there is a point.
The last line of stdout is the list of points as JSON.
"""

import argparse
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.common.processes import PeakMemory
from tests.benchmarks.operator import ours

PARTS = (
    ("ids", "user_map_value.content"),
    ("windows", "user_map_value.content"),
    ("group", "value.merchants"),
)
"""State variables, and what of them grows."""

ON_PAPER = 100_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes after so many ids; `written_bytes` is what the checkpoint's state takes on disk."""

    open_ids: int
    ids_bytes: int
    windows_bytes: int
    group_bytes: int
    written_bytes: int
    java_peak_bytes: int
    python_peak_bytes: int
    last_batch_ms: int


def measure(spark: SparkSession, source: Path, files: list[int], folder: Path) -> list[Point]:
    """Let the files appear up to each point, run the job until it has read them, and look."""
    into, checkpoint = folder / "events", folder / "checkpoint"
    into.mkdir()
    seen: list[tuple[int, int, int, PeakMemory, int]] = []
    paths = sorted(source.glob("*.parquet"))
    for count in files:
        for path in paths[len(list(into.iterdir())) : count]:
            (into / path.name).hardlink_to(path)
        with PeakMemory() as peak:
            query = ours.run(spark, str(into), str(checkpoint), lambda df, _id: _drop(df.toArrow()))
            query.awaitTermination()
        progress = [batch for batch in query.recentProgress if batch.numInputRows][-1]
        ids = pc.count_distinct(pq.read_table(into, columns=["event_id"])["event_id"]).as_py()
        size = _size(checkpoint / "state")
        seen.append(
            (ids, query.lastProgress.batchId, size, peak, progress.durationMs["triggerExecution"])
        )
    return [
        Point(ids, *_state(spark, checkpoint, batch_id), size, peak.java, peak.python, ms)
        for ids, batch_id, size, peak, ms in seen
    ]


def per_million(points: list[dict[str, int]]) -> dict[str, dict[str, float]]:
    """A straight line through the points for each quantity, and what it says of ON_PAPER ids."""
    millions = np.array([point["open_ids"] for point in points]) / 1e6
    lines = {}
    for name in points[0]:
        if name.endswith("_bytes"):
            values = np.array([point[name] for point in points], np.float64)
            slope, start = np.polyfit(millions, values, 1)
            slope = max(slope, 0.0)  # what does not grow falls a little by chance
            lines[name] = {
                "per_million": float(slope),
                "at_none": float(start),
                "extrapolated": float(start + slope * ON_PAPER / 1e6),
            }
    return lines


def _drop(_table: object) -> None:
    """Nothing is done with a batch."""


def _state(spark: SparkSession, checkpoint: Path, batch_id: int) -> tuple[int, ...]:
    """The bytes of each of PARTS as they were after a batch, through Spark's own reader."""
    sizes = []
    for name, column in PARTS:
        reader = spark.read.format("statestore").option("stateVarName", name)
        rows = reader.option("batchId", batch_id).load(str(checkpoint))
        found = rows.agg(F.sum(F.octet_length(column))).collect()
        sizes.append(found[0][0] or 0)
    return tuple(sizes)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("events", type=Path)
    parser.add_argument("files", type=int, nargs="+")
    given = parser.parse_args()
    os.environ.update(spark_environment())
    spark = ours.create()
    # RocksDB's threads may still write while the JVM ends.
    scratch = tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True)
    with scratch as folder:
        points = measure(spark, given.events, given.files, Path(folder))
        spark.stop()
    print(json.dumps([asdict(point) for point in points]))


if __name__ == "__main__":
    main()
