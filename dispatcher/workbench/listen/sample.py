"""A delivery composed from arguments, for `holdfast trigger`. Pure.

The same arguments give the same key and bytes on any machine and any day: a second `trigger` is a
duplicate, and one with other data a conflict, as with a real sender. So the default time of the
decision is a constant.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.sink.contract.canonical import INTEGER_MAX, NotCanonical, rfc3339
from holdfast.sink.contract.envelope import BODY_BYTES_MAX, TYPE_FORM, Envelope, is_type
from holdfast.sink.contract.key import Key

OCCURRED_AT = datetime(2026, 1, 1, 0, 15, tzinfo=UTC)
SUBJECT = "m_test"
SUBJECT_MEMBER = "merchant_id"
WINDOW = timedelta(minutes=15)
HOLD_TYPES = ("payout_hold.block", "payout_hold.release")


class SampleError(ValueError):
    """The arguments are invalid; the message says which and why."""


@dataclass(frozen=True, slots=True)
class SampleDelivery:
    """A key and the exact bytes of the body."""

    key: Key
    body: bytes


def compose(
    type_: str,
    *,
    subject: str,
    sequence: int,
    data: Mapping[str, Any] | None,
    changes: Sequence[str],
    key: str | None = None,
    occurred_at: datetime = OCCURRED_AT,
) -> SampleDelivery:
    """Compose the delivery. `data` defaults to a complete example; `changes` are `name=value`.

    Without `key`, the key is derived from type, subject and sequence. Raises `SampleError`.
    """
    if not is_type(type_):
        raise SampleError(f"{type_!r} is not a type: use {TYPE_FORM}")
    if not 1 <= sequence <= INTEGER_MAX:
        raise SampleError(f"--sequence must be 1 to {INTEGER_MAX}")
    if not subject:
        raise SampleError("--subject must not be empty")
    members = dict(example(type_, subject, occurred_at) if data is None else data)
    for change in changes:
        name, value = _change(change)
        members[name] = value
    try:
        parsed_key = Key.parse(key) if key is not None else _key(type_, subject, sequence)
        body = Envelope.of(type_, occurred_at, parsed_key, members).body(sequence)
    except NotCanonical as error:
        raise SampleError(str(error)) from None
    if len(body) > BODY_BYTES_MAX:
        raise SampleError(f"the body has {len(body):,} bytes; {BODY_BYTES_MAX:,} are allowed")
    return SampleDelivery(parsed_key, body)


def example(type_: str, subject: str, occurred_at: datetime) -> dict[str, Any]:
    """Return `data` as the exposure job writes it; for other types, only the subject."""
    if type_ not in HOLD_TYPES:
        return {SUBJECT_MEMBER: subject}
    action = type_.rpartition(".")[2]
    return {
        SUBJECT_MEMBER: subject,
        "action": action,
        "currency": "USD",
        "exposure_minor": 8_500_000 if action == "block" else 2_200_000,
        "limit_minor": 5_000_000,
        "release_level_minor": 5_000_000,
        "policy_version": "2025-11-01",
        "revision": 1,
        "window_start": rfc3339(occurred_at - WINDOW),
        "window_end": rfc3339(occurred_at),
    }


def data_of(text: bytes) -> dict[str, Any]:
    """Parse the JSON object for `data`; raises `SampleError`."""
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise SampleError("--data is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise SampleError("--data is not a JSON object")
    return value


def _change(text: str) -> tuple[str, Any]:
    """Parse `name=value`. The value is JSON if it parses (`5`, `true`, `"5"`, `[1]`), else text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise SampleError(f"-D {text!r} is not name=value")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _key(type_: str, subject: str, sequence: int) -> Key:
    return Key.of(["trigger/v1", type_, subject, str(sequence)])
