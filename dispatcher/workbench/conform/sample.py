"""The deliveries that are fired: made-up subjects, everything derived from the seed. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sink.contract.envelope import Envelope
from sink.contract.key import Key

SUBJECT = "{subject}"
"""Stands for the made-up subject in the data of a contract that is not ours."""

_BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
_WINDOW = timedelta(minutes=15)
_LIMIT_MINOR = 5_000_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One decision of the sample, as the exact bytes that say it."""

    key: str
    subject: str
    sequence: int
    body: bytes = field(repr=False)

    def with_body(self, body: bytes) -> "Delivery":
        """Return the same decision in other bytes."""
        return Delivery(self.key, self.subject, self.sequence, body)


@dataclass(frozen=True, slots=True)
class Sample:
    """Makes deliveries. The same seed makes the same ones, to the byte.

    `type` and `data` are those of another contract than payout holds; each text `{subject}` in
    `data` becomes the subject.
    """

    seed: int
    type: str | None = None
    data: Mapping[str, Any] | None = None

    def delivery(
        self, name: str, *, sequence: int = 1, action: str = "block", revised: bool = False
    ) -> Delivery:
        """Make the delivery `sequence` of the subject that belongs to the check `name`.

        `revised` gives it the same key and another body. Raises `NotCanonical` where `data` has no
        canonical form.
        """
        subject = f"conform-{self.seed}-{name}"
        key = Key.of(["holdfast-conform/v1", subject, str(sequence)])
        end = _BEGIN + _WINDOW * sequence
        occurred = end + timedelta(seconds=1) if revised else end
        if self.type is None:
            type_, data = f"payout_hold.{action}", _hold(subject, action, end)
        else:
            type_, data = self.type, _filled(dict(self.data or {}), subject)
        body = Envelope.of(type_, occurred, key, data).body(sequence)
        return Delivery(key.text, subject, sequence, body)


def _hold(subject: str, action: str, end: datetime) -> dict[str, Any]:
    over = action == "block"
    return {
        "merchant_id": subject,
        "action": action,
        "window_start": end - _WINDOW,
        "window_end": end,
        "revision": 1,
        "exposure_minor": 8_500_000 if over else 2_200_000,
        "limit_minor": _LIMIT_MINOR,
        "release_level_minor": _LIMIT_MINOR,
        "currency": "USD",
        "policy_version": "conform",
    }


def _filled(value: Any, subject: str) -> Any:
    match value:
        case str():
            return value.replace(SUBJECT, subject)
        case dict():
            return {name: _filled(item, subject) for name, item in value.items()}
        case list():
            return [_filled(item, subject) for item in value]
        case _:
            return value


def unknown_key(seed: int) -> str:
    """Return a key in the right form that no delivery of this seed has."""
    return f"hf_{hashlib.sha256(f'nobody knows {seed}'.encode()).hexdigest()[:32]}"
