"""The query of the exposure job, as `holdfast job run` starts it."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.operator import output
from holdfast.spark_app.operator.job import Job, start
from holdfast.spark_app.runtime import session
from tests.benchmarks.operator.rules import SETTINGS, policy


def create() -> SparkSession:
    """The session of the product; it alone chooses its JVM options."""
    return session.create("holdfast bench")


def run(
    spark: SparkSession, path: str, checkpoint: str, each: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the job over the files that are there, one a batch."""
    job = Job(
        paths=(path,),
        format=Format.PARQUET,
        checkpoint=checkpoint,
        stream="bench",
        policy=policy(),
        settings=SETTINGS,
        max_files_per_trigger=1,
    )
    return start(spark, job, each, available_now=True)


def windows(batches: list[pa.Table]) -> pa.Table:
    """The emitted windows: merchant_id, window_end, exposure_minor."""
    tables = [output.unpack(batch).windows for batch in batches]
    return pa.concat_tables(tables).select(["merchant_id", "window_end", "exposure_minor"])
