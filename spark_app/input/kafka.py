"""Kafka topics as a stream, through Spark's own connector."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from holdfast.spark_app.input.broker import compiled
from holdfast.spark_app.input.events import Parsed
from holdfast.spark_app.input.formats import KeyRule, ValueFormat
from holdfast.spark_app.input.kafka_options import Connection, starting_options
from holdfast.spark_app.input.lines import parse_lines
from holdfast.spark_app.input.records import COLUMNS, RecordParser
from holdfast.spark_app.input.sources import Kafka

if TYPE_CHECKING:
    from holdfast.spark_app.input.schemas import Schemas


def read(spark: SparkSession, source: Kafka, connected: Connection) -> DataFrame:
    """Return a streaming DataFrame of rows that `parser(source)` reads, with their `batch_time`.

    `batch_time` is the timestamp that Spark stores with the batch, so a replay has the same one.
    """
    options: dict[str, str] = {**connected.resolved(), **starting_options(source.starting)}
    if source.is_pattern:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - as everybody does
        options["subscribePattern"] = str(compiled(jvm, source).pattern())
    else:
        options["subscribe"] = source.topic
    if connected.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(connected.max_offsets_per_trigger)
    rows = spark.readStream.format("kafka").options(**options).load().select(*COLUMNS)
    if source.key is KeyRule.IGNORED:
        # Not sent to Python.
        rows = rows.withColumn("key", F.lit(None).cast("binary"))
    return rows.withColumn("batch_time", F.current_timestamp())


def parser(source: Kafka, schemas: "Schemas | None") -> RecordParser:
    """Return the function that parses the batches of `read`; `schemas` are those of Avro."""
    return RecordParser(_values(source.value_format, schemas), source.key)


def _values(format_: ValueFormat, schemas: "Schemas | None") -> Callable[[pa.Array], Parsed]:
    """Return the function that parses the values of records."""
    match format_:
        case ValueFormat.JSON:
            return parse_lines
        case ValueFormat.AVRO:
            if schemas is None:
                raise ValueError("values in Avro need schemas")
            return schemas.parser()
