"""The body of a delivery: `{"type","timestamp","sequence","key","data"}`, read strictly.

What JSON readers disagree about (a member twice, NaN, floats, integers beyond 2^53-1, NUL, lone
surrogates, a byte order mark) is refused: the sink never writes it, so it is damage or an attack.
Members that this version does not know are accepted, so that the contract can grow.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from dispatcher.receiver.errors import Reason, VerificationError
from sink.contract.canonical import INTEGER_MAX, NotCanonical, canonical_json
from sink.contract.key import Key

_TYPE = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_TYPE_CHARACTERS_MAX = 128
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")


@dataclass(frozen=True, slots=True)
class Body:
    """What the sender decided, and when it occurred."""

    type: str
    timestamp: datetime
    sequence: int
    key: str
    data: Mapping[str, Any]


def parse_body(raw: bytes) -> Body:
    """Read the exact bytes of a body; raises `VerificationError` (`bad_body`) for anything else."""
    try:
        value = json.loads(
            raw.decode(), object_pairs_hook=_once, parse_constant=_refuse, parse_float=_refuse
        )
        canonical_json(value)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else _why(error)
        raise VerificationError(Reason.BAD_BODY, why) from None
    if not isinstance(value, dict):
        raise VerificationError(Reason.BAD_BODY, "the body is not a JSON object")
    return Body(
        type=_type(value),
        timestamp=_moment(value),
        sequence=_sequence(value),
        key=_key(value),
        data=_data(value),
    )


def parse_rfc3339(text: str) -> datetime:
    """Read a time as the sink writes it (UTC, `Z`); raises `ValueError` for every other form."""
    if not _RFC3339.fullmatch(text):
        raise ValueError("not a UTC time such as 2026-11-02T12:15:00Z")
    return datetime.fromisoformat(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member occurs twice")
    return members


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number[:32]} is not an integer")


def _why(error: ValueError) -> str:
    match error:
        case UnicodeDecodeError():
            return "the body is not UTF-8"
        case json.JSONDecodeError():
            return f"not JSON: {error.msg} at character {error.pos}"
        case NotCanonical():
            return str(error)[:200]
        case _:
            return f"not JSON: {error}"[:200]


def _type(value: dict[str, Any]) -> str:
    found = value.get("type")
    if not isinstance(found, str) or len(found) > _TYPE_CHARACTERS_MAX:
        raise VerificationError(Reason.BAD_BODY, "`type` is missing or not a short string")
    if not _TYPE.fullmatch(found):
        raise VerificationError(Reason.BAD_BODY, "`type` is not a dotted name")
    return found


def _moment(value: dict[str, Any]) -> datetime:
    found = value.get("timestamp")
    if not isinstance(found, str):
        raise VerificationError(Reason.BAD_BODY, "`timestamp` is missing or not a string")
    try:
        return parse_rfc3339(found)
    except ValueError as error:
        raise VerificationError(Reason.BAD_BODY, f"`timestamp`: {error}") from None


def _sequence(value: dict[str, Any]) -> int:
    found = value.get("sequence")
    if type(found) is not int or not 1 <= found <= INTEGER_MAX:
        raise VerificationError(Reason.BAD_BODY, "`sequence` is missing or not a positive integer")
    return found


def _key(value: dict[str, Any]) -> str:
    found = value.get("key")
    if not isinstance(found, str):
        raise VerificationError(Reason.BAD_BODY, "`key` is missing or not a string")
    try:
        return Key.parse(found).text
    except NotCanonical:
        raise VerificationError(
            Reason.BAD_BODY, "`key` is not hf_ and 32 lower-case hex digits"
        ) from None


def _data(value: dict[str, Any]) -> Mapping[str, Any]:
    found = value.get("data")
    if not isinstance(found, dict):
        raise VerificationError(Reason.BAD_BODY, "`data` is missing or not an object")
    return found
