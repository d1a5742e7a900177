"""The exposure job as one streaming query: events in, one batch of blobs after another to the sink.

    files -> rows -> validate and pack by key group +
    topic -> rows -> validate and pack by key group +-> watermark -> exposure step per group -> sink
    ticks of the idle clock ------------------------+

There is one watermark, over the rows of all sources: one that is slow or silent does not hold back
the others.

The watermark column is computed on the map side, after validation: a refused row or a future-dated
event never advances it. It is dropped before the stateful operator, because Spark drops late rows
before an operator whose input has it; here the step decides what is late, and records it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.sink.contract.checkpoint import (
    LINKING_CLASS,
    MANAGER_CLASS,
    MANAGER_SETTING,
    manager_jar,
    needs_manager,
)
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.initial import Initial
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.input import kafka, ticks
from holdfast.spark_app.input.events import Parsed
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.kafka_options import Connection
from holdfast.spark_app.input.schemas import Schemas
from holdfast.spark_app.input.source import parser, read
from holdfast.spark_app.input.sources import Files, Kafka, Source, Ticks
from holdfast.spark_app.operator.blobs import OUTPUT_DDL
from holdfast.spark_app.operator.groups import GROUPS_PER_PARTITION, STATE_PARTITIONS, group_numbers
from holdfast.spark_app.operator.pack import PACKED_DDL, Packer
from holdfast.spark_app.operator.processor import KeyGroupProcessor

_log = logging.getLogger(__name__)

MODE = "Update"


@dataclass(frozen=True)
class Job:
    """What the query reads, and its settings."""

    paths: tuple[str, ...]
    format: Format
    checkpoint: str
    stream: str
    policy: Policy
    settings: Settings = field(default_factory=Settings)
    key_groups: int | None = None
    """None: as the checkpoint has it; in a new one `GROUPS_PER_PARTITION` for each partition."""
    partitions: int = STATE_PARTITIONS
    max_files_per_trigger: int | None = None
    """Of each path."""
    topics: tuple[Kafka, ...] = ()
    connection: Connection | None = None
    """How the cluster of the topics is reached."""
    schemas: Schemas | None = None
    """Of topics whose values are Avro."""
    idle_timeout_ms: int = 0
    """Processing time without events after which the clock advances the watermark; 0 disables."""
    sources: tuple[Source, ...] = ()
    """The sources in the order of the checkpoint (`checkpoint.journal`)."""
    initial: Initial | None = None
    """The initial state of a new checkpoint; Spark reads it in the first batch only."""
    savepoint: str | None = None
    """The savepoint with which a new checkpoint begins."""

    @property
    def group_count(self) -> int:
        """How many key groups there are."""
        return self.key_groups or GROUPS_PER_PARTITION * self.partitions

    @property
    def groups(self) -> tuple[int, ...]:
        """The numbers of the key groups."""
        return group_numbers(self.group_count, self.partitions)

    @property
    def declared(self) -> tuple[Source, ...]:
        """The sources that this run asks for."""
        files = (Files(path, self.format) for path in self.paths)
        ticks = (Ticks(),) if self.idle_timeout_ms else ()
        return (*files, *self.topics, *ticks)


def exposure(spark: SparkSession, job: Job) -> DataFrame:
    """Return the streaming DataFrame that `output` reads."""
    initial = None if job.initial is None else job.initial.groups(spark, job.groups, job.settings)
    packed = (_packed(spark, job, each) for each in job.sources or job.declared)
    return decide(reduce(DataFrame.unionAll, packed), job, initial)


def decide(packed: DataFrame, job: Job, initial: GroupedData | None) -> DataFrame:
    """Return the blobs of a stream of `PACKED` rows; `initial` has rows of `initial_state`."""
    delay_ms = job.settings.watermark_delay_us // MILLISECOND_US
    return (
        packed.withWatermark("plausible_at", f"{delay_ms} milliseconds")
        .select("key_group", "events", "refused")
        .groupBy("key_group")
        .transformWithState(
            statefulProcessor=KeyGroupProcessor(job.policy, job.settings),
            outputStructType=OUTPUT_DDL,
            outputMode=MODE,
            timeMode="EventTime",
            initialState=initial,
        )
    )


def _packed(spark: SparkSession, job: Job, source: Source) -> DataFrame:
    """Return the rows of a source, packed by key group (`pack.PACKED`)."""
    match source:
        case Ticks():
            return ticks.read(spark, job.checkpoint, job.groups[0])
        case Files():
            rows = read(spark, source.path, source.format, job.max_files_per_trigger)
            return _pack(job, rows, parser(source.format))
        case Kafka():
            if job.connection is None:
                raise ValueError("a job with topics needs a connection")
            return _pack(
                job, kafka.read(spark, source, job.connection), kafka.parser(source, job.schemas)
            )


def _pack(job: Job, rows: DataFrame, parse: Callable[[pa.RecordBatch], Parsed]) -> DataFrame:
    packer = Packer(
        parse=parse,
        policy=job.policy,
        future_tolerance_us=job.settings.future_tolerance_us,
        groups=job.groups,
    )
    return rows.mapInArrow(packer.__call__, PACKED_DDL)


SPARKS_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""What writes a checkpoint on a local disk where Spark's JVM does not have `LINKING_CLASS`.

It does what Spark's default does: a temporary file and its checksum, a look whether the final name
is taken, and a rename. The default looks by running `readlink` as a program, several times for each
file.
"""


def local_manager(spark: SparkSession) -> str:
    """Return the class that writes the files of a checkpoint on a local disk."""
    context: Any = spark.sparkContext
    if context._jvm.org.apache.spark.util.Utils.classIsLoadable(LINKING_CLASS):  # noqa: SLF001 - PySpark has no public way
        return LINKING_CLASS
    _log.warning(
        "Spark has no %s: of two drivers on this checkpoint, one that stands still while it writes"
        " can replace a file of the other. Give spark-submit the jar: --jars %s",
        LINKING_CLASS,
        manager_jar(),
    )
    return SPARKS_MANAGER


def use_manager(spark: SparkSession, files: CheckpointFiles) -> None:
    """Choose what writes Spark's files of a checkpoint, unless `spark-submit` has chosen it.

    Where a rename that refuses a taken name is atomic, as on HDFS, Spark's default uses it.
    """
    if spark.conf.get(MANAGER_SETTING, None) is not None:
        return
    if files.is_local:
        spark.conf.set(MANAGER_SETTING, local_manager(spark))
    elif needs_manager(files.location):
        spark.conf.set(MANAGER_SETTING, MANAGER_CLASS)


def start(
    spark: SparkSession,
    job: Job,
    sink: Callable[[DataFrame, int], None],
    *,
    available_now: bool = False,
    planned_only: bool = False,
    interval_ms: int = 200,
) -> StreamingQuery:
    """Start the query: for what is available now, or endlessly, at most one batch per interval.

    With `planned_only`, for the one batch that is planned and not done: it plans none.
    """
    # Spark keeps the number with which a checkpoint began, and ignores another one.
    spark.conf.set("spark.sql.shuffle.partitions", str(job.partitions))
    use_manager(spark, CheckpointFiles(spark, job.checkpoint))
    writer = (
        exposure(spark, job)
        .writeStream.queryName(job.stream)
        .outputMode(MODE)
        .option("checkpointLocation", job.checkpoint)
        .foreachBatch(sink)
    )
    if planned_only:
        return writer.trigger(once=True).start()
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()
