"""One run of one case in a process of its own: `python -m tests.benchmarks.source.one CASE ...`.

The start of the JVM is not counted, nor is a first query over a little input. The last line of
stdout is the result as JSON.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.operator import ours
from tests.benchmarks.operator.one import Kept
from tests.benchmarks.source.cases import CASES, Input


def measure(case: str, spark: SparkSession, given: Input, checkpoint: Path) -> dict[str, Any]:
    """Run a case once; seconds from the query's start to its end."""
    kept = Kept()
    cpu, began = processor_seconds(), time.perf_counter()
    query = CASES[case][1](spark, given, str(checkpoint), kept)
    query.awaitTermination()
    seconds, cpu = time.perf_counter() - began, processor_seconds() - cpu
    progress = query.recentProgress
    events = sum(batch.numInputRows for batch in progress)
    return {
        "events": events,
        "batches": len(progress),
        "seconds": seconds,
        "cpu_s": cpu,
        "rate": events / seconds,
        "answer": _answer(case, kept.batches),
        "dropped": sum(
            operator.numRowsDroppedByWatermark
            for batch in progress
            for operator in batch.stateOperators
        ),
    }


def _answer(case: str, batches: list[pa.Table]) -> dict[str, int] | None:
    """What the cases must agree on: how many windows were emitted, and their sum."""
    if case == "spark_noop":
        return None
    windows = pa.concat_tables(batches) if case == "spark_aggregate" else ours.windows(batches)
    total = pc.sum(windows["exposure_minor"]).as_py()
    return {"windows": windows.num_rows, "exposure_minor": total or 0}


def main() -> None:
    """Warm up, measure, print."""
    case, *inputs = sys.argv[1:]
    warm, given = (Input(**json.loads(each)) for each in inputs)
    os.environ.update(spark_environment())
    spark = CASES[case][0]()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        measure(case, spark, warm, Path(folder) / "warm")
        result = measure(case, spark, given, Path(folder) / "checkpoint")
        spark.stop()
    print(json.dumps(result))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
