"""Spark's own operators: deduplicate within the watermark, then a sum per merchant and window.

It does less than the job: no validation, no holds and decisions, no record of what came late or
twice, no correction of a window that was emitted. Its watermark waits as long as the job's delay
and cutoff together, so that both take the same late events; ids leave its state after that time,
where the job keeps them as long as their window.
"""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

from tests.benchmarks.operator.plain import create, files
from tests.benchmarks.operator.rules import CUTOFF_S, DELAY_S, WINDOW_S

__all__ = ["create", "run", "windows"]


def run(
    spark: SparkSession, path: str, checkpoint: str, each: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the query over the files that are there, one a batch."""
    return (
        files(spark, path)
        .withWatermark("occurred_at", f"{DELAY_S + CUTOFF_S} seconds")
        .dropDuplicatesWithinWatermark(["event_id"])
        .groupBy(F.window("occurred_at", f"{WINDOW_S} seconds").alias("w"), "merchant_id")
        .agg(F.sum("amount_minor").alias("exposure_minor"))
        .select("merchant_id", F.col("w.end").alias("window_end"), "exposure_minor")
        .writeStream.outputMode("append")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(each)
        .trigger(availableNow=True)
        .start()
    )


def windows(batches: list[pa.Table]) -> pa.Table:
    """The emitted windows: merchant_id, window_end, exposure_minor."""
    return pa.concat_tables(batches)
