"""The Spark session of the job: settings that are part of its guarantees, and logging."""

import logging
import os
import sys
from importlib.resources import files

from pyspark.sql import SparkSession

_STREAMING = "spark.sql.streaming"
_ROCKSDB = f"{_STREAMING}.stateStore.rocksdb"

FIXED = {
    # Times in Parquet files, and in Spark's own reports, are in one zone on every machine.
    "spark.sql.session.timeZone": "UTC",
    # transformWithState needs RocksDB. Version 2 names state files by the task that wrote them, so
    # that a late task of a failed attempt cannot overwrite the state of the one that won.
    f"{_STREAMING}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STREAMING}.stateStore.checkpointFormatVersion": "2",
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    f"{_STREAMING}.stateStore.encodingFormat": "avro",
    f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
    # Timers fire in the batch without data that follows an advance of the watermark.
    f"{_STREAMING}.noDataMicroBatches.enabled": "true",
    # A partial read of a batch in foreachBatch would lose state: it has to fail.
    f"{_STREAMING}.stateStore.commitValidation.enabled": "true",
    # Parquet's other reader takes a column of another type for what the job expects.
    "spark.sql.parquet.enableVectorizedReader": "true",
    # Arrow batches to Python are bounded by rows only: for a bound by bytes the JVM sums all
    # buffers of a batch after each row. `pack` joins small batches, and after it a row is a key
    # group's share of about 200,000 events.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""Not configurable: another value breaks a guarantee, or an existing checkpoint."""

STATE_MEMORY_MB = 512
"""Default memory of RocksDB for all partitions of the state in one process.

Unbounded, each partition may fill two write buffers of 64 MB and a cache of its own, outside the
heap, where only the OOM killer would stop it. The bound is per process, as the limits of a machine
or a container are; 512 MB give the two partitions of a default job the buffers that they would use
anyway.
"""

_JAVA_OPTIONS = "HOLDFAST_SPARK_JAVA_OPTIONS"
"""Appended to our own options, so that they win. The heap is set by Spark's `driver.memory`."""

_OWN_JVM: dict[str, bool | float | int | str | None] = {
    "spark.master": "local[*]",
    # No other host connects to a driver with a local master.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # After an OutOfMemoryError a JVM continues without the threads that died: it has to exit and
    # be replaced. Spark matches plans with regular expressions that recurse: the default stack of
    # 1 MB has ended queries.
    "spark.driver.extraJavaOptions": (
        "-XX:+ExitOnOutOfMemoryError -Xss4m"
        f" -Dlog4j2.configurationFile={files('spark_app.runtime') / 'log4j2.properties'}"
    ),
}


_OWN_PACKAGES = ("sink", "spark_app")


def launched_by_spark_submit() -> bool:
    """Return whether `spark-submit` has started the JVM, with its own settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def create(name: str, state_memory_mb: int = STATE_MEMORY_MB) -> SparkSession:
    """Start Spark, or take the JVM of `spark-submit`; the session has the `FIXED` settings."""
    # Workers would otherwise run the `python3` of the PATH, without these packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if not launched_by_spark_submit():
        ours = f"{_OWN_JVM['spark.driver.extraJavaOptions']} {os.environ.get(_JAVA_OPTIONS, '')}"
        builder = builder.config(map=_OWN_JVM | {"spark.driver.extraJavaOptions": ours.strip()})
    return bound(fix(builder.getOrCreate()), state_memory_mb)


def fix(spark: SparkSession) -> SparkSession:
    """Apply the `FIXED` settings to a session, and return it."""
    for key, value in FIXED.items():
        spark.conf.set(key, value)
    return spark


def bound(spark: SparkSession, state_memory_mb: int) -> SparkSession:
    """Limit the memory of the state, in mebibytes, and return the session.

    All partitions in a JVM share it. Spark reads it once, at the first query of the JVM.
    """
    spark.conf.set(f"{_ROCKSDB}.boundedMemoryUsage", "true")
    spark.conf.set(f"{_ROCKSDB}.maxMemoryUsageMB", str(state_memory_mb))
    return spark


def quiet_logs() -> None:
    """Log to stderr what our own packages warn of; with `HOLDFAST_SPARK_LOG`, everything.

    When a JVM dies, Py4J logs each broken call with its stack, from several threads; the job
    reports that in one line.
    """
    handler = logging.StreamHandler()
    if "HOLDFAST_SPARK_LOG" not in os.environ:
        handler.addFilter(_is_ours)
    # Without a handler at the root, Py4J would install its own.
    logging.getLogger().addHandler(handler)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OWN_PACKAGES
