"""One run of one case in a process of its own: `python -m tests.benchmarks.operator.one CASE ...`.

Each case has its own JVM, because what one case makes hot another would inherit. The JVM's start is
not counted, nor is a first query over a few small files, which loads classes and compiles code.
The last line of stdout is the result as JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.common.processes import processor_seconds


class Kept:
    """What foreachBatch does in every case: the one action, whose result is only held."""

    def __init__(self) -> None:
        self.batches: list[pa.Table] = []

    def __call__(self, df: DataFrame, _batch_id: int) -> None:
        self.batches.append(df.toArrow())


def measure(case: Any, spark: SparkSession, path: Path, checkpoint: Path) -> dict[str, Any]:
    """Run a case once over a directory of files; seconds from the query's start to its end."""
    kept = Kept()
    cpu, began = processor_seconds(), time.perf_counter()
    query = case.run(spark, str(path), str(checkpoint), kept)
    query.awaitTermination()
    seconds, cpu = time.perf_counter() - began, processor_seconds() - cpu
    progress = query.recentProgress
    events = sum(batch.numInputRows for batch in progress)
    return {
        "events": events,
        "seconds": seconds,
        "cpu_s": cpu,
        "rate": events / seconds,
        "batches": [
            {
                "rows": batch.numInputRows,
                "ms": batch.durationMs["triggerExecution"],
                "parts_ms": batch.durationMs,
                "emitted": emitted,
            }
            for batch, emitted in zip(
                progress, (case.windows([table]).num_rows for table in kept.batches), strict=True
            )
        ],
        "answer": _answer(case.windows(kept.batches)),
        "dropped": sum(
            operator.numRowsDroppedByWatermark
            for batch in progress
            for operator in batch.stateOperators
        ),
    }


def _answer(windows: pa.Table) -> dict[str, int]:
    """What the cases must agree on: how many windows were emitted, and their sum."""
    total = pc.sum(windows["exposure_minor"]).as_py()
    return {"windows": windows.num_rows, "exposure_minor": total or 0}


def main() -> None:
    """Warm up, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("ours", "builtin", "textbook"))
    parser.add_argument("events", type=Path)
    parser.add_argument("warm", type=Path)
    given = parser.parse_args()
    os.environ.update(spark_environment())
    case = import_module(f"tests.benchmarks.operator.{given.case}")
    spark = case.create()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        measure(case, spark, given.warm, Path(folder) / "warm")
        result = measure(case, spark, given.events, Path(folder) / "checkpoint")
        spark.stop()
    print(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
