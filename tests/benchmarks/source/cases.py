"""The cases of the throughput: the job over files and over a topic, and Spark's own over the topic.

Every batch has the same number of events. The two of Spark have its own session, with default JVM
options, and do less: one only reads, the other deduplicates and sums as `operator.builtin` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark_app.input import connector
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.kafka_options import connection
from holdfast.spark_app.input.sources import Kafka
from holdfast.spark_app.operator.job import Job, start
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.launch import Launch
from tests.benchmarks.operator import plain
from tests.benchmarks.operator.rules import CUTOFF_S, DELAY_S, SETTINGS, WINDOW_S, policy

Each = Callable[[DataFrame, int], None]

DDL = "event_id STRING, merchant_id STRING, amount_minor LONG, occurred_at TIMESTAMP"
"""What the sums need: Spark parses no other field."""


@dataclass(frozen=True, slots=True)
class Input:
    """Where the events are: a folder of files, and a topic with the same."""

    folder: str
    servers: str
    topic: str
    per_batch: int


def ours_session() -> SparkSession:
    """Return the session of the product, with the connector."""
    return session.create("holdfast bench", launch=Launch(conf=connector.find((), ()).settings))


def spark_session() -> SparkSession:
    """Return a session of Spark as it is, with the connector."""
    return plain.create(connector.find((), ()).settings)


def files(spark: SparkSession, given: Input, checkpoint: str, each: Each) -> StreamingQuery:
    """Start the job's query over the files, one a batch."""
    from_files: dict[str, Any] = {"paths": (given.folder,), "max_files_per_trigger": 1}
    return _start(spark, checkpoint, each, from_files)


def topic(spark: SparkSession, given: Input, checkpoint: str, each: Each) -> StreamingQuery:
    """Start the job's query over the topic."""
    connected = connection(given.servers, (), given.per_batch, accept_data_loss=False)
    from_topic = {"paths": (), "topics": (Kafka(given.topic),), "connection": connected}
    return _start(spark, checkpoint, each, from_topic)


def _start(
    spark: SparkSession, checkpoint: str, each: Each, source: dict[str, Any]
) -> StreamingQuery:
    job = Job(
        format=Format.JSON,
        checkpoint=checkpoint,
        stream="bench",
        policy=policy(),
        settings=SETTINGS,
        **source,
    )
    return start(spark, job, each, available_now=True)


def spark_noop(spark: SparkSession, given: Input, checkpoint: str, _each: Each) -> StreamingQuery:
    """Start a query that reads keys and values, and nothing else."""
    return _run(_records(spark, given).writeStream.format("noop"), checkpoint)


def spark_aggregate(
    spark: SparkSession, given: Input, checkpoint: str, each: Each
) -> StreamingQuery:
    """Start Spark's own operators: parse, deduplicate, sum by merchant and window."""
    event = F.from_json(F.col("value").cast("string"), DDL)
    sums = (
        _records(spark, given)
        .select(event.alias("event"))
        .select("event.*")
        .withWatermark("occurred_at", f"{DELAY_S + CUTOFF_S} seconds")
        .dropDuplicatesWithinWatermark(["event_id"])
        .groupBy(F.window("occurred_at", f"{WINDOW_S} seconds").alias("w"), "merchant_id")
        .agg(F.sum("amount_minor").alias("exposure_minor"))
        .select("merchant_id", F.col("w.end").alias("window_end"), "exposure_minor")
    )
    return _run(sums.writeStream.outputMode("append").foreachBatch(each), checkpoint)


def _records(spark: SparkSession, given: Input) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": given.servers,
        "subscribe": given.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(given.per_batch),
    }
    return spark.readStream.format("kafka").options(**options).load().select("value")


def _run(writer: Any, checkpoint: str) -> StreamingQuery:
    query: StreamingQuery = (
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    return query


CASES = {
    "files": (ours_session, files),
    "topic": (ours_session, topic),
    "spark_aggregate": (spark_session, spark_aggregate),
    "spark_noop": (spark_session, spark_noop),
}
