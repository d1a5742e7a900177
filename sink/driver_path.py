"""The driver path: the rows are in this process, and are streamed into the transaction."""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
import pyarrow.csv

from sink.content import Staged
from sink.contract.failpoints import failpoint
from sink.database import fitting, statement
from sink.prepared import PreparedBatch

COPY_ROWS = 20_000

_CSV = pa.csv.WriteOptions(include_header=False)
_STAGED = (
    *("subject", "type", "key", "content", "occurred_at", "priority", "traceparent"),
    *("head", "tail"),
)
"""As copy_staged.sql, after the ordinal."""


@dataclass(frozen=True, slots=True)
class InDriver:
    """A prepared batch as `content.Content`."""

    batch: PreparedBatch

    @property
    def row_count(self) -> int:
        return self.batch.row_count

    @property
    def digest(self) -> bytes:
        return self.batch.digest

    def stage(self, connection: psycopg.Connection) -> Staged:
        entries = self.batch.entries.select(_STAGED)
        count = entries.num_rows
        ordinals = pa.array(range(count), pa.int32())
        numbered = entries.add_column(0, "ordinal", ordinals)
        with fitting(), connection.cursor().copy(statement("copy_staged")) as copy:
            for piece in _pieces(numbered.slice(0, count // 2)):
                copy.write(csv(piece))
            failpoint("S4")
            for piece in _pieces(numbered.slice(count // 2)):
                copy.write(csv(piece))
        return Staged(count, self.batch.duplicate_count, self.batch.quarantined.num_rows)

    def quarantine(self, connection: psycopg.Connection, batch_no: int, at: str) -> None:
        quarantine(connection, self.batch.quarantined, batch_no, at)


def quarantine(connection: psycopg.Connection, rows: pa.Table, batch_no: int, at: str) -> None:
    """Write QUARANTINED rows."""
    if not rows.num_rows:
        return
    count = rows.num_rows
    table = rows.add_column(0, "batch_no", pa.repeat(batch_no, count)).append_column(
        "quarantined_at", pa.repeat(at, count)
    )
    with fitting(), connection.cursor().copy(statement("copy_quarantine")) as copy:
        for piece in _pieces(table):
            copy.write(csv(piece))


def csv(table: pa.Table) -> memoryview:
    """Return rows as COPY reads them: a string is always quoted and a null never."""
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink, _CSV)
    return sink.getbuffer()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, table.num_rows, COPY_ROWS):
        yield table.slice(first, COPY_ROWS)
