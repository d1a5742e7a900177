"""What can be done with a quarantined row, and whether a corrected one is the same decision. Pure.

What cannot be read in the kept row cannot be compared, so a person decides. Receivers act on
`data`, so one person alone corrects only its numbers that have no canonical form.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from holdfast.dispatcher.operators.dead_letters.rules import Advice
from holdfast.sink.contract.canonical import (
    DEPTH_MAX,
    INTEGER_MAX,
    NotCanonical,
    canonical_json,
    rfc3339,
)
from holdfast.sink.contract.states import QuarantineReason

ENTRY_REASONS = frozenset(
    {
        QuarantineReason.BAD_SUBJECT,
        QuarantineReason.BAD_KEY,
        QuarantineReason.BAD_TYPE,
        QuarantineReason.BAD_DATA,
        QuarantineReason.KEY_CONFLICT,
        QuarantineReason.BODY_TOO_LARGE,
        QuarantineReason.FUTURE_DATED,
    }
)
"""Reasons of rows that the sink refused as entries; all others are of source rows, but for
`REJECTED`, which is of both."""

# The form in which the quarantine keeps a byte that is not UTF-8 in the JSON text of an entry.
_STANDS_FOR_A_BYTE = re.compile(r"\\\\x[89a-f][0-9a-f]")


def is_entry(row: Mapping[str, Any]) -> bool:
    """Return whether the row is to be an entry, rather than one that a job read from its source.

    A rule of the job rejects either; then the text tells which it is. A text that is cut does not:
    it counts as an entry, whose full text a second person compares.
    """
    if row["reason"] != QuarantineReason.REJECTED:
        return row["reason"] in ENTRY_REASONS
    return _is_cut(row["row"]) or {*ENTRY_MEMBERS, "data"} <= _members(row["row"]).keys()


def reason_text(row: Mapping[str, Any]) -> str:
    """Return the reason of a row for a person, with the rule that rejected it."""
    return f"{row['reason']}: {row['rule']}" if row.get("rule") else str(row["reason"])


def with_rules(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for a person, each with `reason_text` as its reason."""
    return [{**row, "reason": reason_text(row)} for row in rows]


def why_not_as_kept(row: Mapping[str, Any]) -> str | None:
    """Return why the kept text cannot be put back unchanged; None when it can."""
    text = row["row"]
    if _is_cut(text):
        return "it was too long to be kept in full, and only its beginning is stored"
    if is_entry(row):
        if _STANDS_FOR_A_BYTE.search(text):
            return "it held bytes that are not UTF-8, and its text only describes them"
    elif "\n" in text or "\r" in text:
        return "it has line breaks, and would come back as several lines"
    return None


def what_helps(row: Mapping[str, Any]) -> list[Advice]:
    """Return the advice for an open row of `quarantine/take`."""
    number = row["id"]
    put_back = Advice(
        f"holdfast quarantine requeue {number} --row FILE --reason TEXT",
        "puts the corrected row of FILE back: `holdfast quarantine export` writes what to correct",
    )
    if not is_entry(row):
        put_back = Advice(
            f"holdfast quarantine requeue {number} --into DIRECTORY --reason TEXT",
            "gives it back to the job that reads DIRECTORY; with --row FILE, corrected",
        )
    return [
        put_back,
        Advice(
            f"holdfast quarantine dismiss {number} --reason TEXT",
            "closes it: nothing is decided for it, and it stays readable here",
        ),
    ]


def _is_cut(text: str) -> bool:
    if not text.startswith('{"cut": true, "bytes": '):
        return False
    try:
        kept = json.loads(text)
    except ValueError:
        return False
    return isinstance(kept, dict) and kept.keys() == {"cut", "bytes", "beginning"}


ENTRY_MEMBERS: Final = ("subject", "type", "key", "occurred_at")
SOURCE_MEMBERS: Final = ("merchant_id", "event_id", "occurred_at")
"""Members that identify the decision, or the event, of a row."""

READ_MEMBERS: Final = ("type", "amount_minor", "currency")
"""Other members that the job reads of an event: compared if readable in the kept row."""

TIME: Final = "occurred_at"
FREES: Final = {
    QuarantineReason.MISSING_TIME: TIME,
    QuarantineReason.BAD_TIME: TIME,
    QuarantineReason.TIME_OUT_OF_RANGE: TIME,
    QuarantineReason.FUTURE_DATED: TIME,
    QuarantineReason.MISSING_TYPE: "type",
    QuarantineReason.MISSING_AMOUNT: "amount_minor",
    QuarantineReason.BAD_AMOUNT: "amount_minor",
    QuarantineReason.AMOUNT_OUT_OF_RANGE: "amount_minor",
    QuarantineReason.WRONG_CURRENCY: "currency",
}
"""Reasons that concern one member, which an operator may correct alone."""

_INT64_MAX = 2**63 - 1
# The form in which the quarantine keeps a byte that is not UTF-8, and code points that are no text.
_NOT_TEXT = re.compile(r"\\x[89a-f][0-9a-f]|[\x00\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
"""A source may omit the zone: the job reads such a time as UTC."""


class Placing(NamedTuple):
    """Where a row stands as an entry among the decisions of its subject."""

    subject: str
    type: str
    occurred_at: datetime
    dated_by_hand: bool
    """A person gave the time, or the kept one was refused as wrong."""

    def refused_as_repeat(self, state: Mapping[str, Any]) -> bool:
        """Return whether the sink, which suppresses repeats, would not write it.

        `state` is a row of `common/newest_decision`.
        """
        at = state["own_occurred_at"]
        return at is not None and (self.occurred_at < at or self.type == state["own_type"])


def placing(row: Mapping[str, Any], text: str) -> Placing | None:
    """Return the place of a quarantined entry with `text`; None for what the sink refuses."""
    members = _members(text)
    subject, type_, at = members.get("subject"), members.get("type"), _value(TIME, members)
    if not (is_entry(row) and isinstance(subject, str) and isinstance(type_, str)) or at is None:
        return None
    if _UNSTORABLE.search(subject + type_):
        return None
    kept = _value(TIME, _members(row["row"]))
    by_hand = at != kept or row["reason"] == QuarantineReason.FUTURE_DATED
    return Placing(subject, type_, datetime.fromisoformat(at), by_hand)


class Difference(NamedTuple):
    """A member that differs in the corrected row, or that cannot be compared."""

    member: str
    kept: Any
    """None if it cannot be read."""

    given: Any


def differences(row: Mapping[str, Any], text: str) -> list[Difference]:
    """Return the members that make `text` a decision made by hand; none for the kept decision.

    `row` is a quarantined row with its text.
    """
    if text == row["row"]:
        return []
    entry = is_entry(row)
    kept, corrected = _members(row["row"]), _members(text)
    names = [*(ENTRY_MEMBERS if entry else SOURCE_MEMBERS)]
    if not entry:
        names += [name for name in READ_MEMBERS if _value(name, kept) is not None]
    free = {FREES.get(row["reason"])} | ({TIME} if _value(TIME, kept) is None else set())
    differing = [
        Difference(name, _value(name, kept), _value(name, corrected))
        for name in names
        if name not in free and not _same(name, kept, corrected)
    ]
    return differing + _of_data(kept.get("data"), corrected.get("data")) if entry else differing


def identity(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the text's members for the audit trail, None if unreadable, and its hash."""
    members = _members(text)
    names = ENTRY_MEMBERS if is_entry(row) else SOURCE_MEMBERS
    return {**{name: _value(name, members) for name in names}, "sha256": sha256(text)}


def sha256(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _same(name: str, kept: Mapping[str, Any], corrected: Mapping[str, Any]) -> bool:
    was = _value(name, kept)
    return was is not None and was == _value(name, corrected)


def _of_data(kept: Any, corrected: Any) -> list[Difference]:
    """Return the members of data that need a second person, with their values as JSON."""
    if not (isinstance(kept, dict) and isinstance(corrected, dict)):
        return [Difference("data", _json(kept), _json(corrected))]
    return [
        Difference(f"data.{name}", _json(*was), _json(*now))
        for name in sorted(kept.keys() | corrected.keys())
        for was, now in [([each[name]] if name in each else [] for each in (kept, corrected))]
        if not _corrects(was, now) or _NOT_TEXT.search(name)
    ]


def _corrects(kept: Any, corrected: Any, levels: int = DEPTH_MAX) -> bool:
    """Return whether two values differ at most in numbers without a canonical form."""
    if levels < 0:
        return False
    match kept:
        case dict():
            return (
                isinstance(corrected, dict)
                and kept.keys() == corrected.keys()
                and not any(_NOT_TEXT.search(name) for name in kept)
                and all(_corrects(kept[name], corrected[name], levels - 1) for name in kept)
            )
        case list():
            return (
                isinstance(corrected, list)
                and len(kept) == len(corrected)
                and all(_corrects(*each, levels - 1) for each in zip(kept, corrected, strict=True))
            )
        case str():
            return kept == corrected and not _NOT_TEXT.search(kept)
        case float() | int() if isinstance(kept, float) or abs(kept) > INTEGER_MAX:
            return _is_number(corrected)
        case _:
            return type(kept) is type(corrected) and bool(kept == corrected)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return type(value) in (int, float)


def _json(*value: Any) -> str | None:
    """Return one value as JSON; None without one, or without a canonical form."""
    try:
        return canonical_json(*value).decode() if value else None
    except NotCanonical:
        return None


def _value(name: str, members: Mapping[str, Any]) -> Any:
    """Return a member in a normal form for comparison; None if unreadable."""
    value = members.get(name)
    match value:
        case str() if name == TIME:
            return _moment(value)
        case str() if name not in ("key", "amount_minor") and value and not _NOT_TEXT.search(value):
            return value
        case int() if name == "amount_minor" and not isinstance(value, bool):
            return value if abs(value) <= _INT64_MAX else None
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
    """Return the members of a JSON object; none for other text, or a cut one."""
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
        # Parsers differ in which of the two they take.
        raise ValueError("a member twice")
    return members
