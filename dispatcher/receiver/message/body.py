"""The body of a delivery: `{"type","timestamp","sequence","key","data"}`, parsed strictly.

JSON that parsers disagree about (a repeated member, NaN, floats, integers beyond 2^53-1, NUL, lone
surrogates, a byte order mark) is refused: the sink never writes it, so it is damage or an attack.
Unknown members are accepted, so that the contract can grow.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from holdfast.receiver.errors import Reason, VerificationError
from holdfast.receiver.message.problem import BadData, Refused
from holdfast.sink.contract.canonical import DEPTH_MAX, INTEGER_MAX, NotCanonical, canonical_json
from holdfast.sink.contract.compatibility import parse_time
from holdfast.sink.contract.envelope import TYPE_FORM, is_type

_KEY = re.compile(r"hf_[0-9a-f]{32}")
_INTEGER_CHARACTERS_MAX = 17
"""The length of 2^53-1 with a sign; longer numbers are refused before conversion."""
_WHITE = " \t\n\r"
_DEPTH_MAX = DEPTH_MAX + 1
"""The body is one level around `data`, whose depth the sender limits."""
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")


TEXT_BYTES_MAX = 1024
"""Longest text by default, which is also the longest subject that the sink writes."""


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a delivery; `timestamp` is when the decision occurred.

    A signature proves the sender, not that this version of the service understands `data`. So read
    it by these methods: each returns the member that a path of names leads to, and raises `BadData`
    (answered 422) where it is missing, null or of another form.

    >>> body = Body("t", datetime(2026, 11, 2), 1, "hf_0", {"lines": {"count": 3}})
    >>> body.integer("lines", "count", least=1)
    3
    """

    type: str
    timestamp: datetime
    sequence: int
    key: str
    data: Mapping[str, Any]

    def require_type(self, *known: str) -> str:
        """Return the type, which must be one of `known`; else raise `Refused` (answered 400)."""
        if self.type not in known:
            raise Refused("unknown_type", f"this service does not support {self.type}")
        return self.type

    def text(self, *path: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
        """Return a text of 1 to `bytes_max` bytes of UTF-8."""
        text = self.value(*path)
        if not isinstance(text, str) or not 1 <= len(text.encode()) <= bytes_max:
            raise _bad(path, f"is not a text of 1 to {bytes_max} bytes")
        return text

    def integer(self, *path: str, least: int = -INTEGER_MAX, most: int = INTEGER_MAX) -> int:
        """Return an integer from `least` to `most`."""
        number = self.value(*path)
        if type(number) is not int or not least <= number <= most:
            raise _bad(path, f"is not an integer of {least} to {most}")
        return number

    def boolean(self, *path: str) -> bool:
        """Return true or false."""
        flag = self.value(*path)
        if not isinstance(flag, bool):
            raise _bad(path, "is not true or false")
        return flag

    def time(self, *path: str) -> datetime:
        """Return a time that the sender wrote as RFC 3339 in UTC."""
        text = self.value(*path)
        try:
            return parse_rfc3339(text if isinstance(text, str) else "")
        except ValueError as error:
            raise _bad(path, f"is {error}") from None

    def value(self, *path: str) -> Any:
        """Return a member of any form, null too: the caller checks it, and raises `BadData`."""
        node: Any = self.data
        for name in path:
            if not isinstance(node, Mapping) or name not in node:
                raise _bad(path, "is missing")
            node = node[name]
        return node


def _bad(path: Sequence[str], reason: str) -> BadData:
    return BadData(f"`{'.'.join(('data', *path))}` {reason}")


def parse_body(raw: bytes) -> Body:
    """Parse the exact bytes of a body; raises `VerificationError` (`bad_body`)."""
    try:
        text = raw.decode().strip(_WHITE)
        value, end = _DECODER.raw_decode(text)
        if not _is_plain(text):
            canonical_json(value, depth_max=_DEPTH_MAX)
    except (ValueError, RecursionError) as error:
        reason = (
            "nested too deeply" if isinstance(error, RecursionError) else _decoding_fault(error)
        )
        raise VerificationError(Reason.BAD_BODY, reason) from None
    if end != len(text):
        raise VerificationError(Reason.BAD_BODY, "there is data after the JSON value")
    if not isinstance(value, dict):
        raise VerificationError(Reason.BAD_BODY, "the body is not a JSON object")
    return Body(
        type=_type(value),
        timestamp=_moment(value),
        sequence=_sequence(value),
        key=_key(value),
        data=_data(value),
    )


def is_key(text: str) -> bool:
    """Return whether `text` has the form of a key, `holdfast.sink.contract.key.Key.text`."""
    return _KEY.fullmatch(text) is not None


def parse_rfc3339(text: str) -> datetime:
    """Parse a time in the sink's format (UTC, `Z`); raises `ValueError` for any other."""
    if not _RFC3339.fullmatch(text):
        raise ValueError("not a UTC time such as 2026-11-02T12:15:00Z")
    return parse_time(text)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member occurs twice")
    return members


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number[:32]} is not an integer")


def _integer(text: str) -> int:
    if (
        len(text) > _INTEGER_CHARACTERS_MAX
        or not -INTEGER_MAX <= (number := int(text)) <= INTEGER_MAX
    ):
        raise ValueError(f"{text[:32]} is beyond 2^53-1, which JSON parsers round")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_repeats,
    parse_constant=_refuse,
    parse_float=_refuse,
    parse_int=_integer,
)
"""Created once: `json.loads` would create one per body."""


def _is_plain(text: str) -> bool:
    """Return whether the JSON cannot contain NUL, a lone surrogate or deep nesting.

    The first two need an escape, and depth needs brackets. So most bodies are known to be clean
    without checking each value.
    """
    if "\\" in text and "\\u" in text:
        return False
    return text.count("{") + text.count("[") <= _DEPTH_MAX


def _decoding_fault(error: ValueError) -> str:
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
    type_ = value.get("type")
    if not isinstance(type_, str) or not is_type(type_):
        raise VerificationError(Reason.BAD_BODY, f"`type` is missing or not {TYPE_FORM}")
    return type_


def _moment(value: dict[str, Any]) -> datetime:
    text = value.get("timestamp")
    if not isinstance(text, str):
        raise VerificationError(Reason.BAD_BODY, "`timestamp` is missing or not a string")
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise VerificationError(Reason.BAD_BODY, f"`timestamp`: {error}") from None


def _sequence(value: dict[str, Any]) -> int:
    sequence = value.get("sequence")
    if type(sequence) is not int or not 1 <= sequence <= INTEGER_MAX:
        raise VerificationError(Reason.BAD_BODY, "`sequence` is missing or not a positive integer")
    return sequence


def _key(value: dict[str, Any]) -> str:
    key = value.get("key")
    if not isinstance(key, str):
        raise VerificationError(Reason.BAD_BODY, "`key` is missing or not a string")
    if not is_key(key):
        raise VerificationError(Reason.BAD_BODY, "`key` is not hf_ and 32 lower-case hex digits")
    return key


def _data(value: dict[str, Any]) -> Mapping[str, Any]:
    data = value.get("data")
    if not isinstance(data, dict):
        raise VerificationError(Reason.BAD_BODY, "`data` is missing or not an object")
    return data
