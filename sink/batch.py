"""From the rows of a micro-batch to entries that can be written; no I/O, no clock.

A row that cannot become an entry is quarantined with its reason and never stops the batch; a table
that cannot be right (a column is missing, a type has no canonical form) stops it before any row.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from sink.columns import ENTRY, REFUSED, check_companion, check_entries, check_refused
from sink.contract.key import Key
from sink.contract.states import QuarantineReason
from sink.digest import digest
from sink.entry import PreparedEntry, Refused, Unreadable, entry_of
from sink.errors import BatchTooLarge
from sink.evidence import detail_text, readable, row_text, storable

ROWS_MAX = 1_000_000
"""Most rows of one batch, as entries or refused: each passes through the driver's Python."""

BYTES_MAX = 1 << 30
"""Most bytes of one batch in Arrow, over all of its tables."""


@dataclass(frozen=True)
class BatchInput:
    """The tables of one micro-batch, as `select` makes them of the DataFrame's rows."""

    entries: pa.Table
    """subject string, type string, key list<string>, occurred_at timestamp[us, UTC], data struct;
    optional priority (an integer; 0, the default, is the most urgent) and traceparent string."""

    refused: pa.Table | None = None
    """Rows that were refused before: reason (a `QuarantineReason`), detail, row (its JSON text)."""

    companions: Mapping[str, pa.Table] = field(default_factory=dict)
    """Further flat tables that belong to the batch: a replay must bring them again, unchanged."""


class QuarantinedRow(NamedTuple):
    """A row that was set aside."""

    reason: QuarantineReason
    detail: str
    row: str


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch as the transaction takes it.

    `row_count` is `len(entries) + duplicate_count + len(quarantined)`.
    """

    entries: tuple[PreparedEntry, ...]
    """In the order in which they are numbered: by subject, occurred_at, key parts. Keys differ."""

    quarantined: tuple[QuarantinedRow, ...]

    duplicate_count: int
    """Rows that repeat another row's key with the same content."""

    row_count: int
    digest: bytes


class _Row(NamedTuple):
    position: int
    parts: list[str]
    entry: PreparedEntry


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

    found, refused = _sort_out(batch.entries)
    entries, conflicting, duplicate_count = _settle_keys(found)
    set_aside = sorted([*refused, *conflicting], key=lambda pair: pair[0])
    return PreparedBatch(
        entries=tuple(entries),
        quarantined=(*_quarantined(batch.entries, set_aside), *_handed_in(batch.refused)),
        duplicate_count=duplicate_count,
        row_count=row_count,
        digest=digest(tables),
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
            f" {BYTES_MAX:,} bytes pass through the driver. Nothing was written, and the batch is"
            " still in the checkpoint; let the source give less at a time (maxFilesPerTrigger,"
            " maxOffsetsPerTrigger) and start from the checkpoint as it was before this batch."
        )


def _sort_out(table: pa.Table) -> tuple[list[_Row], list[tuple[int, Refused]]]:
    found: list[_Row] = []
    refused: list[tuple[int, Refused]] = []
    for index, row in enumerate(_rows(table)):
        try:
            found.append(_Row(index, row[2], entry_of(*row)))
        except Refused as why:
            refused.append((index, why))
    return found, refused


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = []
    for name in ENTRY:
        if name not in table.column_names:
            columns.append([None] * table.num_rows)
        elif name == "occurred_at":
            # As microseconds: Python's years end at 9999, those of a bad clock do not.
            columns.append(table.column(name).cast(pa.int64()).to_pylist())
        else:
            columns.append(_values(table.column(name), _or_unreadable))
    return zip(*columns, strict=True)


def _values(column: pa.ChunkedArray, one_by_one: Callable[[pa.Scalar], Any]) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        return [one_by_one(value) for value in column]
    return values


def _or_unreadable(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError) as error:
        return Unreadable(str(error))


def _settle_keys(
    found: list[_Row],
) -> tuple[list[PreparedEntry], list[tuple[int, Refused]], int]:
    """Put the entries in order and keep the first of each key."""
    found.sort(key=_order)
    kept: dict[Key, PreparedEntry] = {}
    conflicting: list[tuple[int, Refused]] = []
    duplicate_count = 0
    for position, _, entry in found:
        first = kept.setdefault(entry.key, entry)
        if first is entry:
            continue
        if first.envelope == entry.envelope:
            duplicate_count += 1
            continue
        detail = f"key {entry.key.text} is in this batch before, with other content"
        conflicting.append((position, Refused(QuarantineReason.KEY_CONFLICT, detail)))
    return list(kept.values()), conflicting, duplicate_count


def _order(row: _Row) -> tuple[Any, ...]:
    # Type and tail settle what is left between two rows of one key: input order never counts.
    entry = row.entry
    return entry.subject, entry.occurred_at, row.parts, entry.type, entry.envelope.tail


def _quarantined(table: pa.Table, set_aside: list[tuple[int, Refused]]) -> Iterator[QuarantinedRow]:
    for index, why in set_aside:
        row = {name: table.column(name)[index] for name in table.column_names}
        yield QuarantinedRow(why.reason, detail_text(str(why)), row_text(row))


def _handed_in(refused: pa.Table | None) -> Iterator[QuarantinedRow]:
    if refused is None:
        return
    columns = (_values(refused.column(name), readable) for name in REFUSED)
    for reason, detail, row in zip(*columns, strict=True):
        yield QuarantinedRow(QuarantineReason(reason), detail_text(detail), storable(row))
