"""One entry as JSON text that a person wrote: read, or refused with a message. Pure."""

import json
import re
from datetime import datetime
from typing import Any

import pyarrow as pa

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_TYPES = {
    "subject": pa.string(),
    "type": pa.string(),
    "key": pa.list_(pa.string()),
    "occurred_at": pa.timestamp("us", "UTC"),
    "priority": pa.int32(),
    "traceparent": pa.string(),
}
_STRINGS = ("subject", "type", "traceparent")
_OPTIONAL = {"priority", "traceparent"}
_MEMBERS = {*_TYPES, "data"}
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_DIGITS_MAX, _SHOWN_MAX = 20, 40


class Unfit(ValueError):
    """The row cannot become an entry; the text is for a person."""


def table_of(text: str) -> pa.Table:
    """Return the one row of a JSON text as `BatchInput.entries`. Raises `Unfit`."""
    row = _object(text)
    unknown, missing = row.keys() - _MEMBERS, _MEMBERS - _OPTIONAL - row.keys()
    if unknown or missing:
        raise Unfit(
            f"an entry has the members {', '.join(sorted(_MEMBERS))};"
            f" missing here: {', '.join(sorted(missing)) or 'none'};"
            f" unknown: {', '.join(sorted(unknown)) or 'none'}"
        )
    if not isinstance(row["data"], dict | None):
        raise Unfit("data is not a JSON object")
    _typed(row)
    row["occurred_at"] = _moment(row["occurred_at"])
    columns = {name: pa.array([row.get(name)], type_) for name, type_ in _TYPES.items()}
    try:
        data = pa.array([row["data"]], None if row["data"] is not None else pa.struct([]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise Unfit("a list of data has values of several types, which an entry cannot") from None
    if data[0].as_py() != row["data"]:
        raise Unfit("objects in one list of data differ in their members, which an entry cannot")
    return pa.table({**columns, "data": data})


def _typed(row: dict[str, Any]) -> None:
    """Refuse what Arrow would refuse, or convert: a text into a list of letters."""
    for name in _STRINGS:
        if not isinstance(row.get(name), str | None):
            raise Unfit(f"{name} is not a string")
    key, priority = row["key"], row.get("priority")
    if key is not None and not (isinstance(key, list) and all(isinstance(k, str) for k in key)):
        raise Unfit("key is not a list of strings")
    if priority is not None and not (type(priority) is int and abs(priority) <= _INT32_MAX):
        raise Unfit(f"priority is not a whole number of at most {_INT32_MAX}")


def _object(text: str) -> dict[str, Any]:
    try:
        row = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
        json.dumps(row, ensure_ascii=False).encode()
    except RecursionError:
        raise Unfit("the row is nested too deeply") from None
    except UnicodeEncodeError:
        raise Unfit("a text of the row holds a lone surrogate, which is not a character") from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise Unfit(f"the row is not JSON: it cannot be read from {position} on") from None
    if not isinstance(row, dict):
        raise Unfit("the row is not a JSON object")
    return row


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Unfit("an object of the row has a member twice")
    return members


def _integer(text: str) -> int:
    if len(text) <= _DIGITS_MAX and abs(number := int(text)) <= _INT64_MAX:
        return number
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
    raise Unfit(f"the number {shown} is beyond 2^53-1, which JSON readers round: send a string")


def _no_float(text: str) -> Any:
    raise Unfit(
        f"the number {text[:_SHOWN_MAX]} is not whole: send integer minor units, or a string"
    )


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    if isinstance(text, str) and _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    raise Unfit(f"occurred_at {str(text)[:_SHOWN_MAX]!r} is not RFC 3339 with a zone")
