"""The deliveries to send: made-up subjects, all derived from the seed. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key

SUBJECT = "{subject}"
"""Placeholder for the made-up subject in custom `data`."""

_BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
_WINDOW = timedelta(minutes=15)
_LIMIT_MINOR = 5_000_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One decision of the sample, with the exact bytes of its body."""

    key: str
    subject: str
    sequence: int
    body: bytes = field(repr=False)

    def with_body(self, body: bytes) -> "Delivery":
        """Return the same decision with another body."""
        return Delivery(self.key, self.subject, self.sequence, body)


@dataclass(frozen=True, slots=True)
class Sample:
    """Makes deliveries. The same seed makes the same deliveries, byte for byte.

    `type` and `data` describe a contract other than payout holds; `{subject}` in the texts of
    `data` is replaced by the subject.
    """

    seed: int
    type: str | None = None
    data: Mapping[str, Any] | None = None

    def delivery(
        self, name: str, *, sequence: int = 1, action: str = "block", revised: bool = False
    ) -> Delivery:
        """Make the delivery `sequence` of the subject of the check `name`.

        `revised` makes a different body with the same key. Raises `NotCanonical` if `data` has no
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
    is_over_limit = action == "block"
    return {
        "merchant_id": subject,
        "action": action,
        "window_start": end - _WINDOW,
        "window_end": end,
        "revision": 1,
        "exposure_minor": 8_500_000 if is_over_limit else 2_200_000,
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
    """Return a well-formed key that no delivery of this seed has."""
    return f"hf_{hashlib.sha256(f'nobody knows {seed}'.encode()).hexdigest()[:32]}"
