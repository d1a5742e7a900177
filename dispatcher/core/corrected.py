"""Whether a corrected row of the quarantine is still the kept row's own decision. Pure.

What cannot be read in the kept row cannot be compared, so it is decided by hand, too.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from dispatcher.core.quarantine import is_entry
from sink.contract.canonical import rfc3339
from sink.contract.states import QuarantineReason

ENTRY_MEMBERS: Final = ("subject", "type", "key", "occurred_at")
SOURCE_MEMBERS: Final = ("merchant_id", "event_id", "occurred_at")
"""Members that say which decision, or which event, a row is."""

TIME: Final = "occurred_at"
TIME_REASONS: Final = frozenset(
    {
        QuarantineReason.MISSING_TIME,
        QuarantineReason.BAD_TIME,
        QuarantineReason.TIME_OUT_OF_RANGE,
        QuarantineReason.FUTURE_DATED,
    }
)
"""Reasons that are about the time itself, so that an operator may correct it."""

# How the quarantine writes a byte that is not UTF-8, and half of a surrogate pair.
_NOT_TEXT = re.compile(r"\\x[89a-f][0-9a-f]|[\ud800-\udfff]")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
"""A source may leave the zone out: the job reads such a time as UTC."""


class Difference(NamedTuple):
    """A member that the corrected row has otherwise, or that cannot be compared."""

    member: str
    kept: Any
    """None where it cannot be read."""

    given: Any


def differences(row: Mapping[str, Any], text: str) -> list[Difference]:
    """Return what makes `text` a decision made by hand; none where it is the kept one's own.

    `row` is a row of the quarantine with its text.
    """
    if text == row["row"]:
        return []
    names = ENTRY_MEMBERS if is_entry(row) else SOURCE_MEMBERS
    kept, given = _members(row["row"]), _members(text)
    found = [
        Difference(name, _value(name, kept), _value(name, given))
        for name in names
        if not _same(name, kept, given)
    ]
    if row["reason"] in TIME_REASONS or _value(TIME, kept) is None:
        return [each for each in found if each.member != TIME]
    return found


def identity(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return what the audit trail says of a text: its members, None where unreadable, and hash."""
    members = _members(text)
    names = ENTRY_MEMBERS if is_entry(row) else SOURCE_MEMBERS
    return {**{name: _value(name, members) for name in names}, "sha256": sha256(text)}


def sha256(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _same(name: str, kept: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    was = _value(name, kept)
    return was is not None and was == _value(name, given)


def _value(name: str, members: Mapping[str, Any]) -> Any:
    """Return a member in one form, so that equal ones are the same; None where unreadable."""
    value = members.get(name)
    match value:
        case str() if name == TIME:
            return _moment(value)
        case str() if name != "key" and value and not _NOT_TEXT.search(value):
            return value
        case list() if name == "key" and value and all(_is_part(each) for each in value):
            return value
        case _:
            return None


def _is_part(value: Any) -> bool:
    return isinstance(value, str) and not _NOT_TEXT.search(value)


def _moment(text: str) -> str | None:
    if not _MOMENT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return rfc3339(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def _members(text: str) -> dict[str, Any]:
    """Return the members of a JSON object; none where it is no such thing, or was cut."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or value.keys() == {"cut", "bytes", "beginning"}:
        return {}
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        # Readers differ in which of the two they take.
        raise ValueError("a member twice")
    return members
