"""The driver path: the rows are in this process and are streamed into the transaction."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.states import SuppressedCause
from holdfast.sink.rows.copy_formats import (
    COPY_ROWS,
    HEADER,
    TRAILER,
    Fixed,
    csv,
    moments,
    one_chunk,
    rows,
    uuids,
)
from holdfast.sink.rows.evidence import BEFORE_DATA_LENGTH
from holdfast.sink.rows.numbering import Numbered, Suppressed
from holdfast.sink.rows.prepared import QUARANTINED, PreparedBatch
from holdfast.sink.transaction.content import Arrived, Stamp
from holdfast.sink.transaction.database import fitting, statement

_Piece = TypeVar("_Piece")


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

    def arrive(self, connection: psycopg.Connection) -> Arrived:  # noqa: ARG002 - the rows are in memory
        return Arrived(
            self.batch.arrived,
            self.batch.duplicate_count,
            self.batch.quarantined.num_rows,
        )

    def rows_at(
        self,
        connection: psycopg.Connection,  # noqa: ARG002 - the rows are in memory
        positions: Sequence[int],
    ) -> pa.Table:
        return self.batch.entries.take(pa.array(positions, pa.int64()))

    def add_entries(self, connection: psycopg.Connection, numbered: Numbered, stamp: Stamp) -> None:
        count = len(numbered.rows)
        middle = count // 2
        pieces = chain(_pieces(numbered, 0, middle), _pieces(numbered, middle, count))
        made = ((first, _entries(self.batch.entries, rows, stamp)) for first, rows in pieces)
        if 0 < count <= COPY_ROWS:
            _copy_entries(connection, made, middle)
            return
        for piece in _ahead(made):
            # Each in a COPY of its own: one COPY has 16 MB of shared buffers. Beyond that it has to
            # flush WAL and write out those pages itself before it continues.
            _copy_entries(connection, [piece], middle)

    def add_suppressed(
        self, connection: psycopg.Connection, suppressed: Suppressed, stamp: Stamp
    ) -> None:
        if not len(suppressed.rows):
            return
        with fitting(), connection.cursor().copy(statement("rows/copy_suppressed")) as copy:
            copy.write(HEADER)
            for first in range(0, len(suppressed.rows), COPY_ROWS):
                piece = suppressed.slice(first, COPY_ROWS)
                copy.write(_suppressed(self.batch.entries, piece, stamp))
            copy.write(TRAILER)

    def add_quarantined(self, connection: psycopg.Connection, stamp: Stamp) -> None:
        add_quarantined(connection, self.batch.quarantined, stamp)


def add_quarantined(connection: psycopg.Connection, rows: pa.Table, stamp: Stamp) -> None:
    """Write QUARANTINED rows."""
    count = rows.num_rows
    if not count:
        return
    name = "rows/copy_rejected"
    if rows["rule"].null_count == count:
        # Before revision 0033 the table has no rules.
        rows, name = rows.select(QUARANTINED.names[:-1]), "rows/copy_quarantine"
    at = pa.repeat(rfc3339(stamp.written_at), count)
    stamped = rows.add_column(0, "batch_no", pa.repeat(stamp.batch_no, count))
    with fitting(), connection.cursor().copy(statement(name)) as copy:
        for piece in csv(stamped.append_column("quarantined_at", at)):
            copy.write(piece)


def _copy_entries(
    connection: psycopg.Connection, pieces: Iterable[tuple[int, memoryview]], middle: int
) -> None:
    """Write pieces in one COPY; each has the number of its first row."""
    with fitting(), connection.cursor().copy(statement("rows/copy_entries")) as copy:
        copy.write(HEADER)
        for first, piece in pieces:
            if first == middle:
                failpoint("S4")
            copy.write(piece)
        copy.write(TRAILER)


def _pieces(numbered: Numbered, start: int, stop: int) -> Iterator[tuple[int, pa.Table]]:
    """Return rows `start` to `stop` in chunks, each with the number of its first row."""
    for first in range(start, stop, COPY_ROWS):
        piece = slice(first, min(first + COPY_ROWS, stop))
        rows = pa.table(
            {
                "row": numbered.rows[piece],
                "subject_id": numbered.subject_id[piece],
                "sequence": numbered.sequence[piece],
            }
        )
        yield first, rows


def _ahead(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Yield the pieces, and prepare the next one in a thread while the caller sends this one."""
    with ThreadPoolExecutor(1, "holdfast-ahead") as pool:
        coming = pool.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = pool.submit(next, pieces, None)
            yield piece


def _entries(entries: pa.Table, piece: pa.Table, stamp: Stamp) -> memoryview:
    """Return rows in the columns of copy_entries."""
    column, count = _columns(entries, piece["row"], stamp), piece.num_rows
    sequence = one_chunk(piece["sequence"])
    return rows(
        [
            np.asarray(piece["subject_id"]).astype(">i8"),
            np.asarray(sequence).astype(">i8"),
            _written_at(stamp, count),
            uuids(column["key"]),
            column["type"],
            moments(column["occurred_at"]),
            np.asarray(column["priority"]).astype(">i2"),
            np.full(count, stamp.batch_no, ">i8"),
            column["traceparent"],
            [column["head"], sequence.cast(pa.large_string()), column["tail"]],
        ]
    )


def _suppressed(entries: pa.Table, piece: Suppressed, stamp: Stamp) -> memoryview:
    """Return rows in the columns of copy_suppressed."""
    column, count = _columns(entries, pa.array(piece.rows), stamp), len(piece.rows)
    tail = column["tail"].cast(pa.large_binary())
    return rows(
        [
            np.full(count, stamp.batch_no, ">i8"),
            _written_at(stamp, count),
            piece.subject_id.astype(">i8"),
            uuids(column["key"]),
            moments(column["occurred_at"]),
            np.asarray(column["priority"]).astype(">i2"),
            column["type"],
            pc.if_else(
                pa.array(piece.overtaken), SuppressedCause.OVERTAKEN, SuppressedCause.REPEATED
            ),
            column["traceparent"],
            column["key_text"],
            pc.binary_slice(tail, BEFORE_DATA_LENGTH, -1),
        ]
    )


def _columns(entries: pa.Table, places: pa.Array, stamp: Stamp) -> dict[str, pa.Array]:
    """Return ENTRIES at some positions, by column; a null traceparent becomes the batch's."""
    rows = entries.take(places).combine_chunks()
    column = {name: one_chunk(rows[name]) for name in rows.column_names}
    if stamp.traceparent is not None:
        column["traceparent"] = pc.fill_null(column["traceparent"], stamp.traceparent)
    return column


def _written_at(stamp: Stamp, count: int) -> Fixed:
    return moments(pa.repeat(pa.scalar(stamp.written_at, pa.timestamp("us", "UTC")), count))
