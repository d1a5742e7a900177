"""Spark without Holdfast: a session with default JVM options, and the files.

State lies in RocksDB with changelogs, in as many partitions as the job's; the encoding and the
checkpoint's format are Spark's defaults.
"""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from holdfast.spark_app.input.source import PARQUET_DDL, parquet_amounts
from holdfast.spark_app.operator.groups import STATE_PARTITIONS

_STATE = "spark.sql.streaming.stateStore"


def create(conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark on all cores; `conf` are more settings of it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName("bench")
        .config(
            map={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": False,
                "spark.ui.showConsoleProgress": False,
                "spark.log.level": "OFF",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": STATE_PARTITIONS,
                f"{_STATE}.providerClass": (
                    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
                ),
                f"{_STATE}.rocksdb.changelogCheckpointing.enabled": True,
                # Counting rows costs a lookup for each write; the job has it off as well.
                f"{_STATE}.rocksdb.trackTotalNumberOfRows": False,
                **(conf or {}),
            }
        )
        .getOrCreate()
    )


def files(spark: SparkSession, path: str) -> DataFrame:
    """The event files as a stream, one a batch."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).schema(PARQUET_DDL).parquet(path)
    return parquet_amounts(rows)
