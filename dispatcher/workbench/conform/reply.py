"""The answer to a request, and the outcome that it reports. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.sink.contract.wire import ReceiptOutcome

REPLAYED = "idempotency-replayed"
SHOWN_CHARACTERS_MAX = 80


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or why there is none. Header names are lower-case; the last of two counts."""

    seconds: float
    """From the first byte sent to the last byte read."""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    fault: str | None = None
    """Why there is no answer; None if there is one."""

    @property
    def is_success(self) -> bool:
        """Return whether the sender treats the delivery as delivered."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def content(self) -> dict[str, Any]:
        """The members of the answer; empty if it is not a JSON object."""
        try:
            value = json.loads(self.body.decode())
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def outcome(self) -> ReceiptOutcome | None:
        """The outcome that the receiver reports; None if it reports none."""
        text = self.content.get("outcome")
        if isinstance(text, str) and text in set(ReceiptOutcome):
            return ReceiptOutcome(text)
        if self.is_success and self.headers.get(REPLAYED, "").lower() == "true":
            return ReceiptOutcome.DUPLICATE
        return None

    @property
    def is_busy(self) -> bool:
        """Return whether it asks for a retry, for example while another request is in progress."""
        return self.outcome is ReceiptOutcome.IN_PROGRESS or self.status in {409, 425, 429, 503}

    def __str__(self) -> str:
        if self.status is None:
            return self.fault or "no answer"
        text = self.outcome or self.content.get("reason")
        if not isinstance(text, str):
            text = None
        return f"{self.status} {text[:SHOWN_CHARACTERS_MAX]}" if text else f"{self.status}"
