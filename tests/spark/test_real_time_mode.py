"""What Spark says to the job with the trigger of its real-time mode: see docs/spark/latency.md.

A version of Spark that takes it makes these fail, and the page wrong.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.job.jobs import Play, event, put

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rest

CHECK = "spark.sql.streaming.realTimeMode.allowlistCheck"
MODE = "STREAMING_REAL_TIME_MODE"


def _refusal(spark: "SparkSession", folder: Path, *, check: bool) -> str:
    """Start the job's query in real-time mode, and return Spark's error."""
    from pyspark.errors import IllegalArgumentException, StreamingQueryException

    from holdfast.spark_app.operator.job import exposure
    from holdfast.spark_app.runtime import session

    def no_batch(_df: "DataFrame", batch_id: int) -> None:
        pytest.fail(f"batch {batch_id} ran")

    put(folder / "events", 0, [event("e1", "12:00:00", 5)])
    play = Play(spark, "", folder)
    own = session.fix(spark.newSession())
    own.conf.set(CHECK, str(check).lower())
    writer = (
        exposure(own, play.job(max_files_per_trigger=None))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(no_batch)
        .trigger(realTime="5 seconds")
    )
    with pytest.raises((IllegalArgumentException, StreamingQueryException)) as refused:
        writer.start().awaitTermination(60)
    return str(refused.value)


def test_real_time_mode_has_no_foreach_batch(spark: "SparkSession", tmp_path: Path) -> None:
    refusal = _refusal(spark, tmp_path, check=True)
    assert f"{MODE}.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST" in refusal
    assert "ForeachBatchSink" in refusal


def test_real_time_mode_reads_no_files(spark: "SparkSession", tmp_path: Path) -> None:
    assert f"{MODE}.INPUT_STREAM_NOT_SUPPORTED" in _refusal(spark, tmp_path, check=False)
