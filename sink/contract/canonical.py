"""Canonical JSON: one value, one sequence of bytes.

A subset of RFC 8785 (JSON Canonicalization Scheme): object members sorted by UTF-16 code units, no
white space, UTF-8, minimal escapes. Values that JSON parsers read differently are refused:
floats, integers that a double cannot hold, NUL, lone surrogates, keys that are not strings.
"""

import json
from datetime import datetime, timedelta
from typing import Any

from holdfast.sink.contract.compatibility import UTC

INTEGER_MAX = 2**53 - 1
"""Largest integer that every JSON parser reads exactly (RFC 8259 section 6)."""

DEPTH_MAX = 32

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# json.dumps would build a new encoder for every call with these settings
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class NotCanonical(ValueError):
    """The value has no canonical form; the message names the path and the reason."""


def canonical_json(value: Any, *, depth_max: int = DEPTH_MAX) -> bytes:
    """Return the canonical bytes of a dict, list, tuple, str, int, bool, None or aware datetime.

    Raises `NotCanonical` for anything else, and for values nested in more than `depth_max` objects
    and arrays. A datetime becomes its RFC 3339 text in UTC.

    >>> canonical_json({"b": 1, "a": ["\\u20ac", None, True]})
    b'{"a":["\\xe2\\x82\\xac",null,true],"b":1}'
    """
    return _ENCODER.encode(_plain(value, "$", depth_max)).encode()


def rfc3339(moment: datetime) -> str:
    """Return an aware datetime as RFC 3339 in UTC with `Z`; the fraction only where it is not zero.

    >>> rfc3339(datetime(2026, 11, 2, 12, 15, tzinfo=UTC))
    '2026-11-02T12:15:00Z'
    """
    if moment.tzinfo is None:
        raise NotCanonical(f"time without a zone: {moment!r}")
    utc = moment.astimezone(UTC)
    # strftime pads the year differently between C libraries; isoformat does not
    text = utc.replace(tzinfo=None).isoformat(
        timespec="microseconds" if utc.microsecond else "seconds"
    )
    return f"{text}Z"


def rfc3339_from_micros(micros: int) -> str:
    """Return microseconds since 1970-01-01 UTC as `rfc3339` text."""
    return rfc3339(_EPOCH + timedelta(microseconds=micros))


def _plain(value: Any, path: str, levels: int) -> Any:
    """Return `value` with sorted members; `levels` is how many levels may still be nested."""
    if levels < 0:
        raise NotCanonical(f"{path}: nested too deeply")
    match value:
        case None | bool():
            return value
        case int():
            if abs(value) > INTEGER_MAX:
                raise NotCanonical(f"{path}: {value} is beyond 2^53-1, which JSON readers round")
            return value
        case str():
            return _text(value, path)
        case datetime():
            return rfc3339(value)
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise NotCanonical(f"{path}: key {key!r} is not a string")
            ordered = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
            return {
                _text(key, path): _plain(value[key], f"{path}.{key}", levels - 1) for key in ordered
            }
        case list() | tuple():
            return [_plain(item, f"{path}[{i}]", levels - 1) for i, item in enumerate(value)]
        case _:
            raise NotCanonical(f"{path}: {type(value).__name__} has no canonical form")


def _text(value: str, path: str) -> str:
    if "\x00" in value:
        raise NotCanonical(f"{path}: text holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(f"{path}: text holds a lone surrogate") from None
    return value
