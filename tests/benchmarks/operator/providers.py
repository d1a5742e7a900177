"""Spark's two state store providers under Spark's own operators; a separate process.

`python -m tests.benchmarks.operator.providers PROVIDER EVENTS WARM`: deduplication within the
watermark and a windowed sum, as in `builtin`, with every id kept as long as the job keeps it. The
exposure job itself cannot take part: `transformWithState` needs RocksDB.

A first process reads all files but the last; a second one, on the same checkpoint, reads that one:
`--last`. The last line of stdout is the result as JSON.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.common.processes import PeakMemory, processor_seconds
from tests.benchmarks.common.runs import last_line
from tests.benchmarks.operator.plain import create, files
from tests.benchmarks.operator.rules import CUTOFF_S, DELAY_S, WINDOW_S

PROVIDERS = {
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
HEAP = "4g"


def measure(events: Path, warm: Path, folder: Path) -> dict[str, Any]:
    """Measure both, in turns; the report's `providers`."""
    found = {}
    for name in PROVIDERS:
        words = [
            *("-m", "tests.benchmarks.operator.providers", name),
            *map(str, (events, warm, folder / name)),
        ]
        found[name] = {
            **last_line([sys.executable, *words]),
            "restart": last_line([sys.executable, *words, "--last"]),
        }
        print(f"  {name}: {found[name]}", flush=True)
    return found


def start(spark: SparkSession, path: Path, checkpoint: Path) -> StreamingQuery:
    """Start the query over the files that are there, one a batch."""
    return (
        files(spark, str(path))
        .withWatermark("occurred_at", f"{WINDOW_S + DELAY_S + CUTOFF_S} seconds")
        .dropDuplicatesWithinWatermark(["event_id"])
        .groupBy(F.window("occurred_at", f"{WINDOW_S} seconds"), "merchant_id")
        .agg(F.sum("amount_minor").alias("exposure_minor"))
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(_drop)
        .trigger(availableNow=True)
        .start()
    )


def _drop(df: DataFrame, _batch_id: int) -> None:
    df.toArrow()


def run(spark: SparkSession, path: Path, checkpoint: Path) -> dict[str, Any]:
    """Read what is there and not yet read; the figures of it."""
    collected, cpu = _collection_s(spark), processor_seconds()
    with PeakMemory(every_s=0.2) as peak:
        query = start(spark, path, checkpoint)
        query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch.numInputRows]
    seconds = [batch.durationMs["triggerExecution"] / 1000 for batch in batches]
    events = sum(batch.numInputRows for batch in batches)
    operators = batches[-1].stateOperators
    return {
        "events": events,
        "rate": events / sum(seconds),
        "first_batch_s": seconds[0],
        "batch_s": statistics.median(seconds),
        "slowest_batch_s": max(seconds),
        "commit_s": statistics.median(
            sum(each.commitTimeMs / each.numShufflePartitions for each in batch.stateOperators)
            / 1000
            for batch in batches
        ),
        "collection_s": _collection_s(spark) - collected,
        "cpu_s_per_million": (processor_seconds() - cpu) / events * 1e6,
        "state_memory_bytes": sum(each.memoryUsedBytes for each in operators),
        "java_peak_bytes": peak.java,
        "live_heap_bytes": _live_heap(spark),
        "written_bytes": _written(checkpoint / "state"),
    }


def _collection_s(spark: SparkSession) -> float:
    """Seconds that the JVM has spent on collecting garbage."""
    jvm: Any = spark._jvm
    beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return float(sum(bean.getCollectionTime() for bean in beans)) / 1000


def _live_heap(spark: SparkSession) -> int:
    """Bytes that a full collection leaves; the state stores of the query are still loaded."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    bean = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    return int(bean.getHeapMemoryUsage().getUsed())


def _written(state: Path) -> dict[str, int]:
    """Bytes of the state by kind: what a batch adds, and what a snapshot repeats."""
    small, large = 0, 0
    for path in state.rglob("*"):
        if path.is_file():
            is_small = path.name.endswith((".delta", ".changelog"))
            small += path.stat().st_size * is_small
            large += path.stat().st_size * (not is_small)
    return {"deltas": small, "snapshots": large}


def main() -> None:
    """Warm up, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("provider", choices=PROVIDERS)
    for name in ("events", "warm", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--last", action="store_true", help="read the file that was left out")
    given = parser.parse_args()
    os.environ.update(spark_environment())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {HEAP} pyspark-shell"
    began = time.perf_counter()
    spark = create()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[given.provider])
    session_s = time.perf_counter() - began
    into, checkpoint = given.folder / "events", given.folder / "checkpoint"
    into.mkdir(parents=True, exist_ok=True)
    paths = sorted(given.events.glob("*.parquet"))
    for path in paths if given.last else paths[:-1]:
        if not (into / path.name).exists():
            (into / path.name).hardlink_to(path)
    scratch = tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True)
    with scratch as folder:
        if not given.last:
            run(spark, given.warm, Path(folder))
        found = run(spark, into, checkpoint)
        spark.stop()
    print(json.dumps({"session_s": session_s, **found}))


if __name__ == "__main__":
    main()
