"""JSON lines as events.

Lines are independent: a bad line never affects another one, and has a reason of its own. Spark's
JSON reader is not used because it is too lenient for money: it reads `{...}{...}` as its first
object, an array as its elements and "5" as 5, and it replaces bytes that are not UTF-8.

There are two readers. `_read_all` lets Arrow read all lines at once. It accepts a subset of what
`_read_one` accepts, with the same result (a property test compares them), and returns None as soon
as one line is unusual. `_read_one` reads one line and detects every fault. The texts of faults are
part of the batch's digest: they must not change.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.exposure.schema import TIMESTAMP, one_chunk
from holdfast.spark_app.input.events import EVENT, Fault, Parsed

NESTING_MAX = 64
"""Maximum brackets in a line that Arrow reads; Python's reader has its own limit."""

LINES_READ_SINGLY = 256
"""Lines that are read one by one when one of them is unusual."""

_INT64_MAX = 2**63 - 1
_BLANK = b" \t\r\n"

_TEXT_FAULTS = {
    "event_id": Reason.BAD_TEXT,
    "merchant_id": Reason.BAD_TEXT,
    "type": Reason.BAD_TEXT,
    "currency": Reason.WRONG_CURRENCY,
    "occurred_at": Reason.BAD_TIME,
}

# Texts that Arrow reads in the same way: years from 1000, at most six digits of a second.
_ARROW_TIME = (
    r"^[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# As EVENT, but with the time as text.
_LINE = pa.schema(
    [field.with_type(pa.string()) if field.name == "occurred_at" else field for field in EVENT]
)


def parse_lines(lines: pa.Array) -> Parsed:
    """Read a binary array of lines; blank lines and surrounding white space are ignored."""
    parts = _read(lines)
    faults: dict[int, Fault] = {}
    read = 0
    for part in parts:
        faults.update({read + position: fault for position, fault in part.faults.items()})
        read += part.table.num_rows
    table = pa.Table.from_batches([part.table for part in parts], _LINE).combine_chunks()
    kept = pa.concat_arrays([part.lines for part in parts])
    events = _with_times(table, faults)
    return Parsed(events, lambda at: kept[at].as_py().decode(errors="backslashreplace"), faults)


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines that are not blank (binary), their columns (those of _LINE), and their faults."""

    lines: pa.Array
    table: pa.RecordBatch
    faults: dict[int, Fault]


def _read(lines: pa.Array) -> list[_Part]:
    whole = _read_all(lines)
    if whole is not None:
        return [whole]
    if len(lines) <= LINES_READ_SINGLY:
        return [_read_each(lines)]
    middle = len(lines) // 2
    return [*_read(lines.slice(0, middle)), *_read(lines.slice(middle))]


def _read_all(lines: pa.Array) -> _Part | None:
    """Read all lines at once, or return None when one of them is unusual."""
    try:
        texts = pc.ascii_trim(lines.cast(pa.string()), characters=_BLANK.decode())
    except pa.ArrowInvalid:
        return None  # not UTF-8
    texts = texts.filter(pc.not_equal(texts, ""))
    kept = texts.cast(pa.binary())
    if not len(texts):
        return _Part(kept, pa.RecordBatch.from_pylist([], schema=_LINE), {})
    lists = pa.ListArray.from_arrays([0, len(texts)], texts)
    joined = pc.binary_join(lists, "\n")[0].as_buffer().to_pybytes()
    if not _is_simple(texts, joined):
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(joined),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=_LINE, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(texts):
        return None
    return _Part(kept, table.select(_LINE.names).combine_chunks().to_batches()[0], {})


def _is_simple(texts: pa.Array, joined: bytes) -> bool:
    """Return whether Arrow and Python certainly read these lines alike."""
    # A value of Kafka may have line ends within it, and the next value could complete its last one.
    if joined.count(b"\n") != len(texts) - 1:
        return False
    # No value continues from a } at the end of a line to a { at the start of the next one, so an
    # equal number of rows and lines means one row from each line.
    if not (joined.startswith(b"{") and joined.endswith(b"}")):
        return False
    if joined.count(b"}\n{") != len(texts) - 1:
        return False
    if joined.count(b"{") != len(texts) or b"[" in joined:
        brackets = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
        if pc.max(brackets).as_py() > NESTING_MAX:
            return False
    # Arrow reads the token Inf as a number, Python does not.
    return b"Inf" not in joined or re.search(rb"[^\w\"]Inf\W", joined) is None


def _read_each(lines: pa.Array) -> _Part:
    kept: list[bytes] = [line for line in lines.to_pylist() if line.strip(_BLANK)]
    columns: dict[str, list[Any]] = {name: [] for name in _LINE.names}
    faults: dict[int, Fault] = {}
    for position, line in enumerate(kept):
        values, fault = _read_one(line)
        for name, column in columns.items():
            column.append(values.get(name))
        if fault is not None:
            faults[position] = fault
    table = pa.RecordBatch.from_pydict(columns, schema=_LINE)
    return _Part(pa.array(kept, pa.binary()), table, faults)


def _read_one(line: bytes) -> tuple[dict[str, Any], Fault | None]:
    """Return the fields of a line with the right type, and its fault."""
    try:
        value = _json(line.decode())
    except UnicodeDecodeError as error:
        return {}, Fault(Reason.MALFORMED, f"not UTF-8: {error.reason} at byte {error.start}")
    except RecursionError:
        return {}, Fault(Reason.MALFORMED, "nested too deeply")
    except json.JSONDecodeError as error:
        return {}, Fault(Reason.MALFORMED, f"not JSON: {error.msg} at character {error.pos}")
    if not isinstance(value, tuple):
        return {}, Fault(Reason.MALFORMED, f"expected a JSON object, not {_kind(value)}")
    fields: dict[str, Any] = {}
    for name, item in value:
        if name in _LINE.names:
            if name in fields:
                return {}, Fault(Reason.MALFORMED, f"{name} stands in the line twice")
            fields[name] = item
    return _typed(fields)


def _json(text: str) -> Any:
    # Objects as pairs, not as a dict, so that a repeated field is detected.
    try:
        return json.loads(text, object_pairs_hook=tuple)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer with more digits than Python reads. Some of the digits suffice to know that it
        # is out of range.
        return json.loads(text, object_pairs_hook=tuple, parse_int=lambda digits: int(digits[:99]))


def _typed(fields: dict[str, Any]) -> tuple[dict[str, Any], Fault | None]:
    fault: Fault | None = None
    for name in _LINE.names:
        item = fields.get(name)
        wrong = _amount(item) if name == "amount_minor" else _text(name, item)
        if wrong is not None:
            fields[name] = None
            fault = fault or wrong
    return fields, fault


def _amount(item: Any) -> Fault | None:
    if item is None:
        return None
    if isinstance(item, bool) or not isinstance(item, int):
        return Fault(
            Reason.BAD_AMOUNT,
            f"amount_minor is {_kind(item)}, expected a whole number of minor units",
        )
    if not -_INT64_MAX - 1 <= item <= _INT64_MAX:
        return Fault(Reason.AMOUNT_OUT_OF_RANGE, "amount_minor does not fit 64 bits")
    return None


def _text(name: str, item: Any) -> Fault | None:
    if item is None:
        return None
    if not isinstance(item, str):
        return Fault(_TEXT_FAULTS[name], f"{name} is {_kind(item)}, expected a text")
    try:
        item.encode()
    except UnicodeEncodeError:
        return Fault(_TEXT_FAULTS[name], f"{name} holds half of a surrogate pair")
    return None


def _kind(item: Any) -> str:
    match item:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int():
            return "a number"
        case float():
            return f"the number {item}"
        case str():
            return "a text"
        case list():
            return "an array"
        case _:
            return "an object"


def _with_times(table: pa.Table, faults: dict[int, Fault]) -> pa.RecordBatch:
    """Replace the texts of occurred_at by times; an invalid text is added to `faults`."""
    texts = one_chunk(table["occurred_at"])
    times = parse_times(texts)
    if times.null_count > texts.null_count:
        unread = pc.and_(texts.is_valid(), times.is_null())
        for position in pc.indices_nonzero(unread).to_pylist():
            found = texts[position].as_py()[:80]
            detail = f"occurred_at is {found!r}, expected RFC 3339 with a zone"
            faults.setdefault(position, Fault(Reason.BAD_TIME, detail))
    columns = [times if name == "occurred_at" else one_chunk(table[name]) for name in EVENT.names]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT)


def parse_times(texts: pa.Array) -> pa.Array:
    """Read a column of texts; null where the text is null or is not an RFC 3339 time.

    The accepted form is RFC 3339 section 5.6 with `T`, `t` or a space, and `Z`, `z` or a numeric
    offset: a time without a zone is ambiguous. Digits beyond the microsecond are cut off. A leap
    second is refused, as Spark and Arrow refuse it.
    """
    if pc.all(pc.match_substring_regex(texts, _ARROW_TIME)).as_py() is not False:
        try:
            return texts.cast(TIMESTAMP)
        except pa.ArrowInvalid:
            pass  # a day such as 30 February: the texts are read one by one to find it
    return pa.array(
        [None if text is None else parse_time(text) for text in texts.to_pylist()], TIMESTAMP
    )


def parse_time(text: str) -> int | None:
    """Read one text; microseconds since 1970-01-01 UTC, or None when it is not an RFC 3339 time."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError:
        return None
    # Integers only: with its offset a time may be outside the years of datetime.
    elapsed = local - _EPOCH
    seconds = elapsed.days * 86_400 + elapsed.seconds
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= offset if sign == "+" else -offset
    return seconds * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
