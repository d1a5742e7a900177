"""One delivery composed from arguments, for `holdfast trigger`. Pure.

The same arguments give the same key and the same bytes, on any machine and on any day: a second
`trigger` is a duplicate, one with other data a conflict, as with a real sender. So the time of the
decision is a constant unless it is given.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sink.contract.canonical import INTEGER_MAX, NotCanonical, rfc3339
from sink.contract.envelope import BODY_BYTES_MAX, Envelope
from sink.contract.key import Key

OCCURRED_AT = datetime(2026, 1, 1, 0, 15, tzinfo=UTC)
SUBJECT = "m_test"
SUBJECT_MEMBER = "merchant_id"
WINDOW = timedelta(minutes=15)
HOLD_TYPES = ("payout_hold.block", "payout_hold.release")

_TYPE = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_TYPE_CHARACTERS_MAX = 128


class SpecimenError(ValueError):
    """The arguments make no delivery; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """What is sent: a key, and the exact bytes of the body."""

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
) -> Specimen:
    """Compose the delivery. `data` None takes a complete example; `changes` are `name=value`.

    Without `key`, type, subject and sequence name the decision. Raises `SpecimenError`.
    """
    if len(type_) > _TYPE_CHARACTERS_MAX or not _TYPE.fullmatch(type_):
        raise SpecimenError(f"{type_!r} is no type: names of a-z A-Z 0-9 _ with dots between")
    if not 1 <= sequence <= INTEGER_MAX:
        raise SpecimenError(f"--sequence must be 1 to {INTEGER_MAX}")
    if not subject:
        raise SpecimenError("--subject must not be empty")
    whole = dict(example(type_, subject, occurred_at) if data is None else data)
    for change in changes:
        name, value = _change(change)
        whole[name] = value
    try:
        named = Key.parse(key) if key is not None else _key(type_, subject, sequence)
        body = Envelope.of(type_, occurred_at, named, whole).body(sequence)
    except NotCanonical as error:
        raise SpecimenError(str(error)) from None
    if len(body) > BODY_BYTES_MAX:
        raise SpecimenError(f"the body has {len(body):,} bytes; {BODY_BYTES_MAX:,} are allowed")
    return Specimen(named, body)


def example(type_: str, subject: str, occurred_at: datetime) -> dict[str, Any]:
    """Return `data` as the exposure job writes it; of another type, the subject alone."""
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
    """Read the JSON object that is to be `data`; raises `SpecimenError`."""
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise SpecimenError("--data holds no JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise SpecimenError("--data holds no JSON object")
    return value


def _change(text: str) -> tuple[str, Any]:
    """Read `name=value`: JSON where it is JSON (`5`, `true`, `"5"`, `[1]`), and else text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise SpecimenError(f"-D {text!r} is not name=value")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _key(type_: str, subject: str, sequence: int) -> Key:
    return Key.of(["trigger/v1", type_, subject, str(sequence)])
