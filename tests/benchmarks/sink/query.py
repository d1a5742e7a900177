"""A real streaming query on two cores that passes its batches to a function."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.common.runs import Missing
from tests.benchmarks.sink.rows import FILES

CORES = 2


def play(
    path: Path, ddl: str, each: Callable[[DataFrame, int], None], package: str | None = None
) -> None:
    """Run a query over a folder of batches; raises `Missing` when `package` cannot be had."""
    spark = _session(package)
    # Beside the batches: they go away with the whole run, also if this process is killed.
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=path.parent) as checkpoint:
        query = (
            spark.readStream.schema(ddl)
            .option("maxFilesPerTrigger", FILES)
            .parquet(str(path))
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


def _session(package: str | None) -> SparkSession:
    os.environ.update(spark_environment())
    builder = SparkSession.builder.appName("holdfast bench").config(
        map={
            "spark.master": f"local[{CORES}]",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.sql.session.timeZone": "UTC",
        }
    )
    if package is None:
        return builder.getOrCreate()
    try:
        return builder.config("spark.jars.packages", package).getOrCreate()
    except PySparkRuntimeError as error:
        raise Missing(f"Spark did not start with {package}: {error}") from error
