"""What Spark's tasks do: read the rows of a partition, copy them into the stage, return a summary.

A task commits one chunk at a time, so that no transaction is open while Spark computes the next
rows. Rows of an attempt that fails, is killed or ends late are ignored: its summary is missing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pyarrow as pa

from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.errors import SinkUnavailable
from holdfast.sink.rows.columns import refuse
from holdfast.sink.rows.digest import row_hashes
from holdfast.sink.rows.hashes import contents
from holdfast.sink.rows.nullable import nullable_schema
from holdfast.sink.rows.postgres_text import csv
from holdfast.sink.rows.prepared import ENTRIES, QUARANTINED, quarantine_table
from holdfast.sink.rows.read_rows import read_rows
from holdfast.sink.transaction.database import cut_after, said, transaction
from holdfast.sink.transaction.retry import is_transient
from holdfast.sink.transaction.staging.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"

CHUNK_ROWS = 20_000
CHUNK_BYTES = 8 << 20
"""Maximum of a partition that is held as entries at once; as text it is several times as large."""

_ENTRY = [*(name for name in ENTRIES.names if name != "key_text"), "key_text", "content"]
_SUMMARY = "attempt long, row_count long, refused_count long, byte_count long"
_SUMMARY_ARROW = pa.schema(
    {name: pa.int64() for name in ("attempt", "row_count", "refused_count", "byte_count")}
)


class Summary(NamedTuple):
    """What the attempt of a task has committed to the stage."""

    attempt: int
    row_count: int
    """Entries and refused rows."""

    refused_count: int
    byte_count: int
    """Arrow bytes of the source rows."""


@dataclass(frozen=True, slots=True)
class StageRows:
    """The function for `mapInArrow`: one summary of each partition."""

    stage: Stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - the sink is read without Spark, too

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a task of Spark has a context")
        place = f"{context.partitionId()}/{context.attemptNumber()}"
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        summary = stage_rows(self.stage, context.taskAttemptId(), tables, place)
        yield pa.RecordBatch.from_pylist([summary._asdict()], _SUMMARY_ARROW)


def arrow_schema(df: "DataFrame") -> pa.Schema:
    """Return the Arrow schema in which the rows of a DataFrame are read; runs nothing.

    Its fields are nullable and its times in UTC. Raises `SchemaMismatch` for an interval, which has
    no Arrow type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

    fields = df.schema.fields
    refuse("DataFrame", [each for f in fields for each in _without_arrow(f.dataType, f.name)])
    large = df.sparkSession.conf.get(_LARGE_TYPES, "false") == "true"
    # Nullable before the conversion, too: PyArrow has no list of nulls that are not nullable.
    schema = to_arrow_schema(df.schema.toNullable(), timezone="UTC", prefers_large_types=large)
    return nullable_schema(schema)


def _without_arrow(type_: "DataType", path: str) -> Iterator[str]:
    from pyspark.errors import PySparkTypeError  # noqa: PLC0415 - as above
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415

    if isinstance(type_, StructType):
        for field in type_:
            yield from _without_arrow(field.dataType, f"{path}.{field.name}")
    elif isinstance(type_, ArrayType):
        yield from _without_arrow(type_.elementType, f"{path}[]")
    elif isinstance(type_, MapType):
        yield from _without_arrow(type_.keyType, f"{path}.key")
        yield from _without_arrow(type_.valueType, f"{path}.value")
    else:
        try:
            to_arrow_type(type_, timezone="UTC")
        except PySparkTypeError:
            yield f"{path} is {type_.simpleString()}: cast it to string"


def run_tasks(df: "DataFrame", stage: Stage) -> list[Summary]:
    """Stage all rows of a DataFrame, in one action; a partition without a task has no summary."""
    rows = df.mapInArrow(StageRows(stage), _SUMMARY).collect()
    return [Summary(*row) for row in rows]


def stage_rows(
    stage: Stage, attempt: int, tables: Iterable[pa.Table], place: str = "0/0"
) -> Summary:
    """Copy rows into the stage, and return once all are committed.

    `place` is the partition and the attempt number. Failpoint T1 is passed after the first chunk
    and T2 at the end, as `T1/0/0`. Raises `SinkUnavailable`, `StageLost` and `SchemaMismatch`.
    """
    rows = refused = size = 0
    connection: psycopg.Connection | None = None
    try:
        for table in tables:
            for chunk in _chunks(table):
                connection = connection or stage.connect()
                refused += _copy(connection, stage, attempt, chunk)
                if not rows:
                    failpoint(f"T1/{place}")
                rows += chunk.num_rows
            size += table.nbytes
    except psycopg.Error as error:
        if not is_transient(error):
            raise
        raise SinkUnavailable(
            f"stream {stage.stream!r}: a task lost the database ({said(error)}). Nothing of the"
            " batch was written; Spark runs the task again, or the batch."
        ) from error
    finally:
        if connection:
            connection.close()
    failpoint(f"T2/{place}")
    return Summary(attempt, rows, refused, size)


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    count = table.num_rows
    if not count:
        return
    step = max(1, min(CHUNK_ROWS, count * CHUNK_BYTES // max(table.nbytes, 1)))
    for first in range(0, count, step):
        yield table.slice(first, step)


def _copy(connection: psycopg.Connection, stage: Stage, attempt: int, chunk: pa.Table) -> int:
    """Commit a chunk to the stage; return how many of its rows are refused."""
    rows = read_rows(chunk)
    # Which row has which hash does not matter: the digest combines all hashes of a batch, sorted.
    hashes = [rf"\x{found.hex()}" for found in row_hashes(chunk)]
    count = rows.entries.num_rows
    entries = rows.entries.append_column("content", contents(rows.entries))
    entries = _tagged(entries.select(_ENTRY), attempt, hashes[:count])
    refused = _tagged(
        quarantine_table(rows.refused).select(QUARANTINED.names), attempt, hashes[count:]
    )

    def copy() -> None:
        with (
            cut_after(connection, stage.timeouts.transaction_seconds),
            transaction(connection, stage.timeouts),
        ):
            for name, table in (
                ("staging/copy_stage_entries", entries),
                ("staging/copy_stage_refused", refused),
            ):
                if table.num_rows:
                    with connection.cursor().copy(stage.statement(name)) as stream:
                        for text in csv(table):
                            stream.write(text)

    stage.reached(copy)
    return len(rows.refused)


def _tagged(table: pa.Table, attempt: int, hashes: list[str]) -> pa.Table:
    # In one chunk: PyArrow writes an empty one as NUL bytes.
    return (
        table.combine_chunks()
        .add_column(0, "row_hash", pa.array(hashes, pa.string()))
        .add_column(0, "attempt", pa.repeat(pa.scalar(attempt, pa.int64()), table.num_rows))
    )
