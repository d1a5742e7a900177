"""The rows of a table as entries; a row that cannot become one is refused with its reason.

Most rows are read by column. A row with an unusual value is read alone by `entry_of`, which is the
definition; a property test compares the two. A column that cannot be read as a whole is halved
until the bad row is found, so that it slows down few others.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.envelope import BODY_BYTES_MAX, is_type
from holdfast.sink.contract.key import PART_BYTES_MAX, PARTS_MAX
from holdfast.sink.rows.columns import ENTRY
from holdfast.sink.rows.entry import (
    PRIORITY_MAX,
    SEQUENCE_DIGITS_MAX,
    SUBJECT_BYTES_MAX,
    TRACEPARENT,
    PreparedEntry,
    Refused,
    Unreadable,
    entry_of,
)
from holdfast.sink.rows.evidence import detail_text, row_text
from holdfast.sink.rows.hashes import hashes
from holdfast.sink.rows.json_columns import (
    Malformed,
    Mask,
    joined,
    json_of,
    parts_of,
    text_of,
    times_of,
    true,
)
from holdfast.sink.rows.nullable import nullable_in_utc
from holdfast.sink.rows.prepared import ENTRIES, QuarantinedRow

ROWS_AT_A_TIME = 25_000
ROWS_READ_SINGLY = 256
THREADS = 2
"""More would wait for each other: half of the work holds the GIL."""

_TEXT = pa.large_string()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table; each is in one of the two."""

    entries: pa.Table
    """ENTRIES, in no particular order; several may have one key."""

    refused: list[QuarantinedRow]
    """In the order of the table."""


def read_rows(table: pa.Table) -> Rows:
    """Read a table that has passed `check_entries`."""
    batches = [nullable_in_utc(batch) for batch in table.to_batches(max_chunksize=ROWS_AT_A_TIME)]
    if len(batches) > 1:
        with ThreadPoolExecutor(THREADS, "holdfast-read") as pool:
            parts = [part for found in pool.map(_read, batches) for part in found]
    else:
        parts = [part for batch in batches for part in _read(batch)]
    entries = pa.concat_tables([ENTRIES.empty_table(), *(part.entries for part in parts)])
    return Rows(entries, [row for part in parts for row in part.refused])


def _read(batch: pa.RecordBatch) -> list[Rows]:
    if not batch.num_rows:
        return []
    try:
        entries, odd = _read_by_column(batch)
    except Malformed:
        if batch.num_rows <= ROWS_READ_SINGLY:
            return [read_singly(batch)]
        middle = batch.num_rows // 2
        return _read(batch.slice(0, middle)) + _read(batch.slice(middle))
    if not odd.any():
        return [Rows(entries, [])]
    odd_rows = batch.take(pa.array(np.flatnonzero(odd)))
    return [Rows(entries.filter(pa.array(~odd)), []), read_singly(odd_rows)]


def _read_by_column(batch: pa.RecordBatch) -> tuple[pa.Table, Mask]:
    """Return ENTRIES for all rows, and the mask of rows that must be read alone."""
    subject, odd = text_of(batch.column("subject"))
    odd |= _not_within(subject, 1, SUBJECT_BYTES_MAX)
    types = _types(batch.column("type"))
    key_text, odd_key = _key_texts(batch.column("key"))
    time, odd_time = times_of(batch.column("occurred_at"))
    data, odd_data = parts_of(batch.column("data"))
    priority, odd_priority = _priorities(batch)
    for other in (types, time, batch.column("data")):
        odd |= np.asarray(other.is_null())
    odd |= odd_key | odd_time | odd_data | odd_priority

    count = batch.num_rows
    key = hashes(key_text)
    head = joined('{"type":"', types, '","timestamp":"', time, '","sequence":', count=count)
    tail = joined(',"key":"hf_', key, '","data":', *data, "}", count=count)
    size = pc.add(pc.binary_length(head), pc.binary_length(tail))
    odd |= true(pc.greater(size, BODY_BYTES_MAX - SEQUENCE_DIGITS_MAX))
    columns = {
        "subject": subject,
        "type": types,
        "key_text": key_text,
        "key": key,
        "occurred_at": batch.column("occurred_at"),
        "priority": priority,
        "traceparent": _traceparents(batch),
        "head": head,
        "tail": tail,
    }
    return pa.table(columns).cast(ENTRIES), odd


def _types(values: pa.Array) -> pa.Array:
    """Return the types; null where a type is not valid."""
    texts, _ = text_of(values)
    coded = texts.dictionary_encode()
    good = [text if text and is_type(text) else None for text in coded.dictionary.to_pylist()]
    return pa.array(good, _TEXT).take(coded.indices)


def _key_texts(values: pa.Array) -> tuple[pa.Array, Mask]:
    texts, odd = json_of(values)
    counts = pc.list_value_length(values)
    odd = odd | ~true(pc.and_(pc.greater_equal(counts, 1), pc.less_equal(counts, PARTS_MAX)))
    bad = _not_within(values.flatten().cast(_TEXT), 1, PART_BYTES_MAX)
    ends = np.cumsum(np.asarray(pc.fill_null(counts, 0)))
    odd[np.searchsorted(ends, np.flatnonzero(bad), side="right")] = True
    return texts, odd


def _priorities(batch: pa.RecordBatch) -> tuple[pa.Array, Mask]:
    count = batch.num_rows
    if "priority" not in batch.schema.names or pa.types.is_null(batch.column("priority").type):
        return pa.repeat(pa.scalar(0, pa.int16()), count), np.zeros(count, bool)
    values = pc.fill_null(batch.column("priority").cast(pa.int64()), 0)
    odd = true(pc.or_(pc.less(values, 0), pc.greater(values, PRIORITY_MAX)))
    return pc.if_else(pa.array(odd), 0, values).cast(pa.int16()), odd


def _traceparents(batch: pa.RecordBatch) -> pa.Array:
    if "traceparent" not in batch.schema.names:
        return pa.nulls(batch.num_rows, _TEXT)
    texts, _ = text_of(batch.column("traceparent"))
    good = pc.match_substring_regex(texts, f"^(?:{TRACEPARENT.pattern})$")
    if true(good).all():
        return texts
    # By places: `if_else` of PyArrow 20 to 23 returns wrong offsets for a part of a column.
    return texts.take(pc.if_else(good, pa.array(np.arange(len(texts))), None))


def _not_within(texts: pa.Array, least: int, most: int) -> Mask:
    size = pc.binary_length(texts)
    return ~true(pc.and_(pc.greater_equal(size, least), pc.less_equal(size, most)))


def read_singly(batch: pa.RecordBatch) -> Rows:
    entries: list[PreparedEntry] = []
    refused: list[QuarantinedRow] = []
    for index, row in enumerate(_values(batch)):
        try:
            entries.append(entry_of(*row))
        except Refused as why:
            scalars = {name: batch.column(name)[index] for name in batch.schema.names}
            refused.append(QuarantinedRow(why.reason, detail_text(str(why)), row_text(scalars)))
    return Rows(_table(entries), refused)


def _values(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = []
    for name in ENTRY:
        if name not in batch.schema.names:
            columns.append([None] * batch.num_rows)
        elif name == "occurred_at":
            # As microseconds: Python's years end at 9999, a bad clock's do not.
            columns.append(batch.column(name).cast(pa.int64()).to_pylist())
        else:
            columns.append([_or_unreadable(value) for value in batch.column(name)])
    return zip(*columns, strict=True)


def _or_unreadable(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError) as error:
        return Unreadable(str(error))


def _table(entries: list[PreparedEntry]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "subject": [entry.subject for entry in entries],
        "type": [entry.type for entry in entries],
        "key_text": [entry.key_text for entry in entries],
        "key": [entry.key.digest.hex for entry in entries],
        "occurred_at": [entry.occurred_at for entry in entries],
        "priority": [entry.priority for entry in entries],
        "traceparent": [entry.traceparent for entry in entries],
        "head": [entry.envelope.head.decode() for entry in entries],
        "tail": [entry.envelope.tail.decode() for entry in entries],
    }
    return pa.table(columns, ENTRIES)
