"""Companion tables of a batch: emitted windows, and events that were not applied."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from holdfast.sink.contract import statements
from holdfast.spark_app.operator.output import unpack

if TYPE_CHECKING:
    import psycopg


def writer(stream: str) -> Callable[["psycopg.Connection", pa.Table], None]:
    """Return the sink's `also` for this job, which writes the companion tables of `stream`.

    It runs inside the sink's transaction, as the sink's role, and not for a replay.
    """

    def write(connection: "psycopg.Connection", blobs: pa.Table) -> None:
        output = unpack(blobs)
        if output.windows.num_rows:
            connection.execute(_statement("create_window_batch"))
            _copy(connection, "copy_windows", output.windows)
            connection.execute(_statement("upsert_windows"), {"stream": stream})
        if output.late.num_rows:
            late = output.late
            named = late.append_column("stream", pa.repeat(stream, late.num_rows))
            _copy(connection, "copy_late_events", named)

    return write


def _copy(connection: "psycopg.Connection", name: str, table: pa.Table) -> None:
    csv = pa.BufferOutputStream()
    # Arrow quotes every text and leaves null empty, so Postgres distinguishes "" from null.
    pyarrow.csv.write_csv(table, csv, pyarrow.csv.WriteOptions(include_header=False))
    with connection.cursor().copy(_statement(name)) as copy:
        copy.write(csv.getvalue())


def _statement(name: str) -> bytes:
    return statements.statement("holdfast.spark_app.operator", name)
