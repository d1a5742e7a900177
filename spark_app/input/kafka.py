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
from holdfast.spark_app.input.sources import Kafka

if TYPE_CHECKING:
    from holdfast.spark_app.input.schemas import Schemas

from dataclasses import dataclass

import pyarrow.compute as pc

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input.events import EVENT, Fault

COLUMNS = ("value", "key", "topic", "partition", "offset")
"""The columns of Kafka's source that `RecordParser` reads."""

_BLANK = b" \t\r\n"
_SHOWN = 80


@dataclass(frozen=True)
class RecordParser:
    """Reads batches with the columns `COLUMNS`."""

    values: Callable[[pa.Array], Parsed]
    """Reads values (binary, no nulls): one row of the result for each, or for each not blank."""
    key: KeyRule

    def __call__(self, records: pa.RecordBatch) -> Parsed:
        """Return the events of a batch, those of records without a value last."""
        full, empty, parsed = self._read(records)
        faults = dict(parsed.faults)
        if self.key is KeyRule.MERCHANT_ID:
            for position, fault in _wrong_keys(full["key"], parsed.events["merchant_id"]):
                faults.setdefault(position, fault)
        if not empty.num_rows:
            return Parsed(parsed.events, parsed.text, faults, _places(full))
        ordered = pa.concat_batches([full, empty])
        for position, value in enumerate(empty["value"], full.num_rows):
            faults[position] = _no_value(value)
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(empty.num_rows, field.type) for field in EVENT], schema=EVENT
        )

        def text(position: int) -> str:
            if position < full.num_rows:
                return parsed.text(position)
            value: bytes | None = ordered["value"][position].as_py()
            return "null" if value is None else value.decode()

        events = pa.concat_batches([parsed.events, nothing])
        return Parsed(events, text, faults, _places(ordered))

    def _read(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, Parsed]:
        """Return the records with a value, those without, and the first ones read."""
        has_value = records["value"].is_valid()
        full = records.filter(has_value) if records["value"].null_count else records
        parsed = self.values(full["value"])
        if parsed.events.num_rows < full.num_rows:
            has_value = pa.array([bool((v.as_py() or b"").strip(_BLANK)) for v in records["value"]])
            full = records.filter(has_value)
            parsed = self.values(full["value"])
        return full, records.filter(pc.invert(has_value)), parsed


def _no_value(value: pa.Scalar) -> Fault:
    said = "is empty" if value.is_valid else "is null (a tombstone)"
    return Fault(Reason.MALFORMED, f"the value of the record {said}")


def _wrong_keys(keys: pa.Array, merchants: pa.Array) -> list[tuple[int, Fault]]:
    same = pc.equal(keys, merchants.cast(pa.binary()))
    # Without a merchant id the row has a fault of its own.
    wrong = pc.and_(pc.invert(pc.fill_null(same, fill_value=False)), merchants.is_valid())
    return [
        (position, Fault(Reason.BAD_KEY, _key_text(keys[position], merchants[position].as_py())))
        for position in pc.indices_nonzero(wrong).to_pylist()
    ]


def _key_text(key: pa.Scalar, merchant: str) -> str:
    if not key.is_valid:
        found = "no key"
    else:
        found = f"the key {key.as_py().decode(errors='backslashreplace')[:_SHOWN]!r}"
    return f"the record has {found}, expected its merchant_id {merchant[:_SHOWN]!r}"


def _places(records: pa.RecordBatch) -> Callable[[int], str]:
    def place(position: int) -> str:
        topic, partition, offset = (
            records[name][position].as_py() for name in ("topic", "partition", "offset")
        )
        return f"{topic}, partition {partition}, offset {offset}"

    return place


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
