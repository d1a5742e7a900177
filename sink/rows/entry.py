"""One row as one entry, or refused with its reason; no I/O, no clock."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from holdfast.sink.contract.canonical import NotCanonical, canonical_json
from holdfast.sink.contract.envelope import BODY_BYTES_MAX, TYPE_FORM, Envelope, is_type
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import QuarantineReason

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
        derived = Key.of(_given("key", key))
        key_text = canonical_json(list(key)).decode()
    except NotCanonical as error:
        raise Refused(QuarantineReason.BAD_KEY, str(error)) from None
    try:
        occurred_at = _moment(micros)
        envelope = Envelope.of(type_, occurred_at, derived, _given("data", data))
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


def _given(name: str, value: Any) -> Any:
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
