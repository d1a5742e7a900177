"""What the quarantine keeps of a refused row: JSON text that Postgres can store."""

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from holdfast.sink.contract.canonical import rfc3339, rfc3339_from_micros

ROW_BYTES_MAX = 64 * 1024
"""Longest row text; a longer one is cut, and its length is kept."""

DETAIL_LENGTH_MAX = 1000

_BEFORE_DATA = ',"key":"hf_{}","data":'
BEFORE_DATA_LENGTH = len(_BEFORE_DATA.format(32 * "0"))
"""Number of characters of a tail before `data`; one more follows it."""


def row_text(row: Mapping[str, pa.Scalar]) -> str:
    """Return the row as one JSON object. Bytes that are not UTF-8 become `\\xNN`."""
    values = {name: readable(value) for name, value in row.items()}
    return storable(json.dumps(values, ensure_ascii=False, default=str))


def entry_text(entry: Mapping[str, Any]) -> str:
    """Return an entry (a row of `prepared.ENTRIES`) as the JSON object of its source row."""
    at = entry["occurred_at"]
    members = (
        ("subject", json.dumps(entry["subject"], ensure_ascii=False)),
        ("type", json.dumps(entry["type"])),
        ("key", entry["key_text"]),
        ("occurred_at", json.dumps(rfc3339(at))),
        ("data", entry["tail"].removeprefix(_BEFORE_DATA.format(entry["key"]))[:-1]),
        ("priority", str(entry["priority"])),
        ("traceparent", json.dumps(entry["traceparent"])),
    )
    texts = ", ".join(f'"{name}": {text}' for name, text in members)
    return storable(f"{{{texts}}}")


def storable(text: str | None) -> str:
    """Return `text` as Postgres accepts it: no NUL, no lone surrogate, at most `ROW_BYTES_MAX`."""
    if text is None:
        return "null"
    clean = _clean(text)
    size = len(clean.encode())
    if size <= ROW_BYTES_MAX:
        return clean
    kept = clean.encode()[: ROW_BYTES_MAX // 4].decode(errors="ignore")
    return json.dumps({"cut": True, "bytes": size, "beginning": kept}, ensure_ascii=False)


def detail_text(text: str | None) -> str:
    """Return the text as one line of at most `DETAIL_LENGTH_MAX` characters."""
    return _clean(" ".join((text or "").split()))[:DETAIL_LENGTH_MAX]


def _clean(text: str) -> str:
    text = text.replace("\x00", "\\u0000")
    return text.encode("utf-8", "backslashreplace").decode()


def json_value(value: object) -> str:
    """Return the text of a value that JSON lacks. Raises `TypeError` where none is fixed."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no text that a replay is sure to repeat")


def readable(value: pa.Scalar) -> Any:
    """Return a Python value even where `as_py` fails: bad UTF-8, times beyond Python's years."""
    if not value.is_valid:
        return None
    match value:
        case pa.StructScalar():
            names = [field.name for field in value.type]
            return {name: readable(value[i]) for i, name in enumerate(names)}
        case pa.ListScalar() | pa.LargeListScalar():
            return [readable(item) for item in value.values]
        case pa.StringScalar() | pa.LargeStringScalar():
            return value.as_buffer().to_pybytes().decode(errors="backslashreplace")
        case pa.TimestampScalar():
            return _moment(value.value)
        case _:
            plain = value.as_py()
            return plain.isoformat() if isinstance(plain, datetime) else plain


def _moment(micros: int) -> str | int:
    try:
        return rfc3339_from_micros(micros)
    except OverflowError:
        return micros
