"""From the rows of a micro-batch to entries that can be written; no I/O, no clock.

A row that cannot become an entry is quarantined with its reason and never stops the batch. An
invalid table (a column is missing, a type has no canonical form) stops it before any row.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.states import RULE_FORM, QuarantineReason, is_rule
from holdfast.sink.errors import BatchTooLarge
from holdfast.sink.rows.columns import REFUSED, check_companion, check_entries, check_refused
from holdfast.sink.rows.copy_formats import one_chunk, uuids
from holdfast.sink.rows.digest import digest
from holdfast.sink.rows.evidence import detail_text, entry_text, json_value, readable, storable
from holdfast.sink.rows.hashes import contents
from holdfast.sink.rows.prepared import (
    PreparedBatch,
    QuarantinedRow,
    quarantine_table,
    rejected_row,
)
from holdfast.sink.rows.read_rows import read_rows

ROWS_MAX = 1_000_000
"""Maximum rows of one batch, entries and refused rows: each passes through the driver's Python."""

BYTES_MAX = 1 << 30
"""Maximum Arrow bytes of one batch, over all of its tables."""


class RefusedRow(NamedTuple):
    """A row of `BatchInput.refused`, as `reject` makes it."""

    reason: str
    detail: str
    row: str


def reject(reason: str, row: Mapping[str, Any] | str, detail: str = "") -> RefusedRow:
    """Return a row that a rule of the job rejects, for `BatchInput.refused`.

    `reason` names the rule, `row` is what the quarantine keeps: an object of JSON values, times,
    UUIDs and decimals, or its text. `detail` is one line for a person. Raises `ValueError` for a
    name that a rule cannot have, and `TypeError` for a value that has no text.

    >>> reject("no_such_order", {"order": 17})
    RefusedRow(reason='no_such_order', detail='', row='{"order": 17}')
    """
    if not is_rule(reason):
        raise ValueError(f"{reason!r} cannot name a rule: expected {RULE_FORM}")
    text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False, default=json_value)
    return RefusedRow(reason, detail, text)


@dataclass(frozen=True)
class BatchInput:
    """The tables of one micro-batch, as `select` makes them from the DataFrame's rows.

    >>> def select(rows: pa.Table) -> BatchInput:
    ...     return BatchInput(rows.drop_columns(["score"]), companions={"scores": rows})
    """

    entries: pa.Table
    """subject string, type string, key list<string>, occurred_at timestamp[us, UTC], data struct;
    optional priority (an integer; 0, the default, is the most urgent), traceparent string, and
    rejected string: the rule of the job that rejects the row, else null; and rejected_event string:
    what is kept of a rejected row in its place."""

    refused: pa.Table | Iterable[RefusedRow] | None = None
    """Rows refused before the sink, as `reject` makes them, or a table: reason (a
    `QuarantineReason`, or the name of a rule), detail, row (its JSON text)."""

    companions: Mapping[str, pa.Table] = field(default_factory=dict)
    """Further flat tables that belong to the batch: a replay must hold them unchanged."""

    def __post_init__(self) -> None:
        if isinstance(self.refused, Iterable) and not isinstance(self.refused, pa.Table):
            rows = list(self.refused)
            if all(isinstance(row, RefusedRow) for row in rows):
                table = pa.Table.from_pylist([row._asdict() for row in rows], _REFUSED)
                object.__setattr__(self, "refused", table)


_REFUSED = pa.schema({name: pa.large_string() for name in RefusedRow._fields})


def selected(select: Callable[[pa.Table], BatchInput], table: pa.Table) -> BatchInput:
    """Return what `select` makes of the DataFrame's rows; raises `TypeError` for no batch."""
    made: object = select(table)
    if not isinstance(made, BatchInput):
        raise TypeError(
            f"`select` returned {type(made).__name__}, expected a BatchInput:"
            " BatchInput(entries), with the tables of the batch. Of this batch nothing was written"
            " now; it is in the checkpoint and comes again."
        )
    tables = {"entries": made.entries, **made.companions}
    if made.refused is not None:
        tables["refused"] = made.refused
    for name, value in tables.items():
        if not isinstance(value, pa.Table):
            raise TypeError(
                f"`select` made a BatchInput whose {name!r} is {type(value).__name__}, expected a"
                " pyarrow.Table. Of this batch nothing was written now; it is in the checkpoint and"
                " comes again."
            )
    return made


def prepare(batch: BatchInput) -> PreparedBatch:
    """Check and canonicalise a batch.

    Raises `SchemaMismatch` (a column, or a refused row's reason) and `BatchTooLarge`.
    """
    tables = _tables(batch)
    refused = tables.get("refused")
    row_count = batch.entries.num_rows + (refused.num_rows if refused else 0)
    _check_size(row_count, sum(table.nbytes for table in tables.values()))
    check_entries(batch.entries)
    if refused is not None:
        check_refused(refused)
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
    quarantined = [*rows.refused, *numbered.conflicting, *_refused_before(refused)]
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
        if is_rule(reason):
            yield rejected_row(reason, detail_text(detail), storable(row))
        else:
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
