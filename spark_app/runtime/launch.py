"""Where Spark runs the job, and with which settings: Holdfast's own, and those of `--conf`."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from holdfast.sink.contract.exits import CommandError, ExitCode

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
    # Spark would leave out the records of a file that it cannot read.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Arrow batches to Python are bounded by rows only: for a bound by bytes the JVM sums all
    # buffers of a batch after each row. `pack` joins small batches, and after it a row is a key
    # group's share of about 200,000 events.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""Not configurable: another value breaks a guarantee, or an existing checkpoint."""

STORE_LIMITS = {
    # A connection that is accepted and not answered: Hadoop waits 200 s for each of many tries.
    # Now it tries three times for 15 s, the least that it permits; the SDK below it does not.
    "fs.s3a.connection.timeout": "15s",
    "fs.s3a.connection.establish.timeout": "15s",
    "fs.s3a.connection.acquisition.timeout": "15s",
    "fs.s3a.attempts.maximum": "0",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.retry.interval": "500ms",
    # A store that answers 503 is asked for half a minute.
    "fs.s3a.retry.throttle.limit": "5",
    "fs.s3a.retry.throttle.interval": "250ms",
}
"""Of Hadoop's S3 client, unless `--conf` or its files say otherwise: a failure is reported within a
minute, and then the job begins again from its checkpoint."""

BOUNDED = f"{_ROCKSDB}.boundedMemoryUsage"
BOUND_MB = f"{_ROCKSDB}.maxMemoryUsageMB"

_INTERPRETER = (
    "workers run the Python that the environment variable PYSPARK_PYTHON names, by default that of"
    " the driver"
)
_STATE_MEMORY = "--state-memory bounds the memory of the state"

ELSEWHERE = {
    "spark.master": "--master names it",
    "spark.submit.deployMode": (
        "`job run` is the driver, in this process; spark-submit starts one in the cluster"
    ),
    "spark.submit.pyFiles": (
        "the process in which Spark prepares the state on the driver does not see such files;"
        " install Holdfast where Spark runs, or send it as an archive (docs/spark/cluster.md)"
    ),
    "spark.pyspark.python": _INTERPRETER,
    "spark.pyspark.driver.python": _INTERPRETER,
    "spark.sql.shuffle.partitions": "--partitions says it, and a checkpoint keeps it",
    f"{_STREAMING}.checkpointLocation": "--checkpoint names it",
    f"{_STREAMING}.checkpointFileManagerClass": (
        "it follows from the file system of the checkpoint, and another one can lose a commit"
    ),
    f"{_STREAMING}.minBatchesToRetain": "--keep-batches and --keep-for say it",
    BOUNDED: _STATE_MEMORY,
    BOUND_MB: _STATE_MEMORY,
}
"""Settings of Spark that are not for `--conf`, with what says them instead."""


def of_this_machine(master: str) -> bool:
    """Return whether a master runs all tasks in the driver's own JVM.

    >>> of_this_machine("local[*]"), of_this_machine("local-cluster[2,1,1024]")
    (True, False)
    """
    return master == "local" or master.startswith("local[")


def launched_by_spark_submit() -> bool:
    """Return whether `spark-submit` has started the JVM, with its own settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@dataclass(frozen=True, slots=True)
class Launch:
    """How Spark starts for the job. Nothing in it changes what the job decides."""

    master: str | None = None
    """The master's URL; None for all cores of this machine, or for that of `spark-submit`."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark by name, beside Holdfast's own."""

    @classmethod
    def read(cls, master: str | None, conf: Iterable[str], *, submitted: bool) -> Self:
        """Read `--master` and the `NAME=VALUE` of `--conf`; raises CommandError (usage).

        `submitted`: whether `spark-submit` has started the JVM, which then has its settings.
        """
        settings = dict(map(_setting, conf))
        if submitted and (master is not None or settings):
            raise _refused(
                "--master and --conf after the program are too late under spark-submit, which has"
                " started Spark's JVM; give them to spark-submit, before the program"
            )
        return cls(master, settings)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name.startswith("spark."):
        # The text may be a secret, so the message does not quote it.
        raise _refused(
            "--conf has a text that is no setting of Spark: expected NAME=VALUE, with a name that"
            " begins with `spark.`"
        )
    if name in FIXED:
        raise _refused(
            f"--conf {name} is fixed at {FIXED[name]}: another value breaks a guarantee of the job,"
            " or an existing checkpoint"
        )
    if name in ELSEWHERE:
        raise _refused(f"--conf {name} is not for --conf: {ELSEWHERE[name]}")
    return name, value


def _refused(why: str) -> CommandError:
    return CommandError(
        f"{why}. Nothing was started.", ExitCode.USAGE, code="invalid_spark_setting"
    )
