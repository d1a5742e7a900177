"""The query of the exposure job, as `holdfast job run` starts it, with one policy."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import SECOND_US, Settings
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.operator import output
from holdfast.spark_app.operator.job import Job, start
from holdfast.spark_app.runtime import session

Each = Callable[[DataFrame, int], None]

SETTINGS: Final = Settings()
WINDOW_S: Final = SETTINGS.window_us // SECOND_US
DELAY_S: Final = SETTINGS.watermark_delay_us // SECOND_US
CUTOFF_S: Final = SETTINGS.late_cutoff_us // SECOND_US
POLICY_TEXT: Final = """
version = "bench"
[[default]]
limit_minor = 20_000_000
release_level_minor = 5_000_000
"""


def create() -> SparkSession:
    """The session of the product; it alone chooses its JVM options."""
    return session.create("holdfast bench")


def run(
    spark: SparkSession, path: str, checkpoint: str, each: Each, **source: Any
) -> StreamingQuery:
    """Start the job over the files that are there, one a batch; `source` is another input of it."""
    files = {"paths": (path,), "format": Format.PARQUET, "max_files_per_trigger": 1}
    job = Job(
        checkpoint=checkpoint,
        stream="bench",
        policy=Policy.parse(POLICY_TEXT),
        settings=SETTINGS,
        **{**files, **source},
    )
    return start(spark, job, each, available_now=True)


def windows(batches: list[pa.Table]) -> pa.Table:
    """The emitted windows: merchant_id, window_end, exposure_minor."""
    tables = [output.unpack(batch).windows for batch in batches]
    return pa.concat_tables(tables).select(["merchant_id", "window_end", "exposure_minor"])
