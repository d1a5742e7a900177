"""From the rows of a micro-batch to entries that can be written; no I/O, no clock.

A row that cannot become an entry is quarantined with its reason and never stops the batch. An
invalid table (a column is missing, a type has no canonical form) stops it before any row.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.states import QuarantineReason
from holdfast.sink.errors import BatchTooLarge
from holdfast.sink.rows.columns import REFUSED, check_companion, check_entries, check_refused
from holdfast.sink.rows.copy_formats import one_chunk, uuids
from holdfast.sink.rows.digest import digest
from holdfast.sink.rows.evidence import detail_text, entry_text, readable, storable
from holdfast.sink.rows.hashes import contents
from holdfast.sink.rows.prepared import PreparedBatch, QuarantinedRow, quarantine_table
from holdfast.sink.rows.read_rows import read_rows

ROWS_MAX = 1_000_000
"""Maximum rows of one batch, entries and refused rows: each passes through the driver's Python."""

BYTES_MAX = 1 << 30
"""Maximum Arrow bytes of one batch, over all of its tables."""


@dataclass(frozen=True)
class BatchInput:
    """The tables of one micro-batch, as `select` makes them from the DataFrame's rows.

    >>> def select(rows: pa.Table) -> BatchInput:
    ...     return BatchInput(rows.drop_columns(["score"]), companions={"scores": rows})
    """

    entries: pa.Table
    """subject string, type string, key list<string>, occurred_at timestamp[us, UTC], data struct;
    optional priority (an integer; 0, the default, is the most urgent) and traceparent string."""

    refused: pa.Table | None = None
    """Rows refused before the sink: reason (a `QuarantineReason`), detail, row (its JSON text)."""

    companions: Mapping[str, pa.Table] = field(default_factory=dict)
    """Further flat tables that belong to the batch: a replay must hold them unchanged."""


def prepare(batch: BatchInput) -> PreparedBatch:
    """Check and canonicalise a batch.

    Raises `SchemaMismatch` (a column, or a refused row's reason) and `BatchTooLarge`.
    """
    tables = _tables(batch)
    row_count = batch.entries.num_rows + (batch.refused.num_rows if batch.refused else 0)
    _check_size(row_count, sum(table.nbytes for table in tables.values()))
    check_entries(batch.entries)
    if batch.refused is not None:
        check_refused(batch.refused)
    for name, table in batch.companions.items():
        check_companion(name, table)

    rows = read_rows(batch.entries)
    # Hashes one after another, in parallel with this thread and then with the server.
    pool = ThreadPoolExecutor(1, "holdfast-hash")
    content = pool.submit(contents, rows.entries)
    numbered = in_number_order(rows.entries)
    ordered = pool.submit(lambda: content.result().take(numbered.places))
    hashing = pool.submit(digest, tables)
    pool.shutdown(wait=False)
    quarantined = [*rows.refused, *numbered.conflicting, *_refused_before(batch.refused)]
    return PreparedBatch(
        entries=numbered.entries,
        quarantined=quarantine_table(quarantined),
        duplicate_count=numbered.duplicate_count,
        row_count=row_count,
        content=ordered,
        hashing=hashing,
    )


def _tables(batch: BatchInput) -> dict[str, pa.Table]:
    tables = {f"companion {name}": table for name, table in batch.companions.items()}
    tables["entries"] = batch.entries
    if batch.refused is not None:
        tables["refused"] = batch.refused
    return tables


def _check_size(rows: int, size: int) -> None:
    if rows > ROWS_MAX or size > BYTES_MAX:
        raise BatchTooLarge(
            f"the batch has {rows:,} rows and {size:,} bytes; at most {ROWS_MAX:,} rows and"
            f" {BYTES_MAX:,} bytes pass through the driver. Nothing was written now, and the batch"
            " is still in the checkpoint; set path='staged', so that its rows go from the tasks to"
            " Postgres, and restart. Or limit what the source reads at a time (maxFilesPerTrigger,"
            " maxOffsetsPerTrigger) and start from the checkpoint as it was before this batch."
        )


def _refused_before(refused: pa.Table | None) -> Iterator[QuarantinedRow]:
    if refused is None:
        return
    columns = ([readable(value) for value in refused.column(name)] for name in REFUSED)
    for reason, detail, row in zip(*columns, strict=True):
        yield QuarantinedRow(QuarantineReason(reason), detail_text(detail), storable(row))


# The order in which entries are numbered, and which of several with one key is written.

# The columns after the key order entries of one key: input order never counts.
_ORDER = ("subject", "occurred_at", "key_text", "type", "tail", "priority", "traceparent")


class Ordered(NamedTuple):
    """Entries in order, duplicates and conflicts removed."""

    entries: pa.Table
    """ENTRIES in the order in which they are numbered. Keys are unique."""

    places: pa.Array
    """The position of each in the input, from 0."""

    conflicting: list[QuarantinedRow]
    duplicate_count: int


def in_number_order(entries: pa.Table) -> Ordered:
    """Put ENTRIES in order and keep the first of each key.

    A later one is a duplicate if its subject, type, time and data are the same, else a conflict.
    """
    places = pc.sort_indices(entries, [(name, "ascending") for name in _ORDER])
    ordered = entries.take(places)
    if _differ(ordered["key"]):
        return Ordered(ordered, places, [], 0)
    key = _codes(ordered["key"])
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    content, subject = _codes(contents(ordered)), _codes(ordered["subject"])
    first_of = first[code]
    again = first_of != np.arange(len(key))
    same = (content == content[first_of]) & (subject == subject[first_of])
    differs = again & ~same
    conflicting = ordered.filter(pa.array(differs)).to_pylist()
    return Ordered(
        ordered.filter(pa.array(~again)),
        places.filter(pa.array(~again)),
        [conflict(row) for row in conflicting],
        int(again.sum() - differs.sum()),
    )


def conflict(entry: dict[str, object]) -> QuarantinedRow:
    """Quarantine an entry (a row of ENTRIES) whose key another entry of the batch has."""
    detail = f"key hf_{entry['key']} is in this batch before, with other content"
    return QuarantinedRow(QuarantineReason.KEY_CONFLICT, detail_text(detail), entry_text(entry))


def _differ(keys: pa.ChunkedArray) -> bool:
    """Return whether the first halves of all keys differ; keys are hashes, so a tie is rare."""
    halves = np.sort(uuids(one_chunk(keys)).view("u8")[::2])
    return bool((halves[1:] != halves[:-1]).all())


def _codes(column: pa.ChunkedArray) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    codes: np.ndarray[tuple[int], np.dtype[np.int32]] = np.asarray(
        column.combine_chunks().dictionary_encode().indices
    )
    return codes
