"""The rows of a table as entries; a row that cannot become one is refused with its reason.

Most rows are read by column. A row with an unusual value is read alone by `entry_of`, which is the
definition; a property test compares the two. A column that cannot be read as a whole is halved
until the bad row is found, so that it slows down few others.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import NotCanonical, canonical_json
from holdfast.sink.contract.compatibility import UTC
from holdfast.sink.contract.envelope import BODY_BYTES_MAX, TYPE_FORM, Envelope, is_type
from holdfast.sink.contract.key import PART_BYTES_MAX, PARTS_MAX, Key
from holdfast.sink.contract.states import RULE_FORM, QuarantineReason, is_rule
from holdfast.sink.rows.columns import ENTRY, OF_RULES
from holdfast.sink.rows.evidence import detail_text, readable, row_text, storable
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
from holdfast.sink.rows.prepared import ENTRIES, QuarantinedRow, rejected_row

# One row as one entry, or refused with its reason; no I/O, no clock.

SUBJECT_BYTES_MAX = 1024
PRIORITY_MAX = 2**15 - 1
SEQUENCE_DIGITS_MAX = 19

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PreparedEntry(NamedTuple):
    """An entry without its sequence, which only the transaction knows."""

    subject: str
    type: str
    key_text: str
    key: Key
    envelope: Envelope
    occurred_at: datetime
    priority: int
    traceparent: str | None


class Refused(Exception):
    """The row cannot become an entry; the text is for a person."""

    def __init__(self, reason: QuarantineReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Unreadable(NamedTuple):
    """A value that Python cannot represent: bytes that are not UTF-8, the year 20000."""

    why: str


def entry_of(
    subject: Any, type_: Any, key: Any, micros: Any, data: Any, priority: Any, traceparent: Any
) -> PreparedEntry:
    """Check and canonicalise the values of one row; `micros` is occurred_at since 1970.

    Raises `Refused`.
    """
    _check_subject(subject)
    if not isinstance(type_, str) or not is_type(type_):
        raise Refused(QuarantineReason.BAD_TYPE, f"type {_show(type_)} is not {TYPE_FORM}")
    try:
        derived = Key.of(_required("key", key))
        key_text = canonical_json(list(key)).decode()
    except NotCanonical as error:
        raise Refused(QuarantineReason.BAD_KEY, str(error)) from None
    try:
        occurred_at = _moment(micros)
        envelope = Envelope.of(type_, occurred_at, derived, _required("data", data))
        urgency = _urgency(priority)
    except NotCanonical as error:
        raise Refused(QuarantineReason.BAD_DATA, str(error)) from None
    size = len(envelope.head) + len(envelope.tail) + SEQUENCE_DIGITS_MAX
    if size > BODY_BYTES_MAX:
        raise Refused(
            QuarantineReason.BODY_TOO_LARGE,
            f"the body would have {size:,} bytes; at most {BODY_BYTES_MAX:,} are sent",
        )
    return PreparedEntry(
        subject, type_, key_text, derived, envelope, occurred_at, urgency, _trace(traceparent)
    )


def _check_subject(subject: Any) -> None:
    if not isinstance(subject, str) or not subject:
        why = f"subject {_show(subject)} is not a non-empty string"
    elif "\x00" in subject:
        why = "subject holds a NUL character"
    elif len(subject.encode()) > SUBJECT_BYTES_MAX:
        why = f"subject of more than {SUBJECT_BYTES_MAX} bytes"
    else:
        return
    raise Refused(QuarantineReason.BAD_SUBJECT, why)


def _required(name: str, value: Any) -> Any:
    if value is None:
        raise NotCanonical(f"{name} is null")
    if isinstance(value, Unreadable):
        raise NotCanonical(f"{name}: {value.why}")
    return value


def _moment(micros: int | None) -> datetime:
    if micros is None:
        raise NotCanonical("occurred_at is null")
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise NotCanonical("occurred_at is outside the years 1 to 9999") from None


def _urgency(priority: int | None) -> int:
    if priority is None:
        return 0
    if not 0 <= priority <= PRIORITY_MAX:
        raise NotCanonical(f"priority {priority} is not in 0 to {PRIORITY_MAX}")
    return priority


def _trace(value: Any) -> str | None:
    # W3C Trace Context: a malformed traceparent is ignored. It never stops a decision.
    return value if isinstance(value, str) and TRACEPARENT.fullmatch(value) else None


def _show(value: Any) -> str:
    return f"({value.why})" if isinstance(value, Unreadable) else repr(value)[:200]


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
            parts = [part for read in pool.map(_read, batches) for part in read]
    else:
        parts = [part for batch in batches for part in _read(batch)]
    entries = pa.concat_tables([ENTRIES.empty_table(), *(part.entries for part in parts)])
    return Rows(entries, [row for part in parts for row in part.refused])


def _read(batch: pa.RecordBatch) -> list[Rows]:
    if not batch.num_rows:
        return []
    if not set(OF_RULES).isdisjoint(batch.schema.names):
        rejected, batch = _without_rejected(batch)
        return [Rows(ENTRIES.empty_table(), rejected), *_read(batch)]
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


def _without_rejected(batch: pa.RecordBatch) -> tuple[list[QuarantinedRow], pa.RecordBatch]:
    """Return the rows that a rule of the job rejects, and the others, without the rules.

    Of a rejected row its event is kept where the job names it, else the row.
    """
    none = pa.nulls(batch.num_rows)
    rules, events = (
        batch.column(name) if name in batch.schema.names else none for name in OF_RULES
    )
    names = [name for name in batch.schema.names if name not in OF_RULES]
    batch = pa.RecordBatch.from_arrays([batch.column(name) for name in names], names)
    if rules.null_count == len(rules):
        return [], batch
    is_ordinary = np.asarray(rules.is_null())
    rejected = []
    for place in np.flatnonzero(~is_ordinary).tolist():
        rule = readable(rules[place])
        if events[place].is_valid:
            row = storable(readable(events[place]))
        else:
            row = row_text({name: batch.column(name)[place] for name in names})
        if is_rule(rule):
            rejected.append(rejected_row(rule, "", row))
        else:
            # Rejected all the same: the job did not mean to have it written.
            detail = f"rejected by {rule!r}, which cannot name a rule: expected {RULE_FORM}"
            reason = QuarantineReason.BAD_DATA
            rejected.append(QuarantinedRow(reason, detail_text(detail), row))
    return rejected, batch.take(pa.array(np.flatnonzero(is_ordinary)))


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


_VALUES = [name for name in ENTRY if name not in OF_RULES]
"""The parameters of `entry_of`."""


def _values(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = []
    for name in _VALUES:
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
