"""One request that reached `holdfast listen`, and what it was answered. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

REFUSED = "refused"
"""Not a delivery of ours; `reason` says why."""
FAILED = "failed"
"""A delivery that was answered with a failure on purpose, and not applied."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What arrived. What is not verified is not read: a refused request has no `type` or `key`."""

    number: int
    """From 1, in the order of arrival."""
    at: datetime
    outcome: str
    """A `ReceiptOutcome`, `refused` or `failed`."""
    status: int | None
    """What it is answered; None: the connection is cut after it was applied."""
    bytes: int
    """The size of the body."""
    reason: str | None = None
    detail: str | None = None
    type: str | None = None
    subject: str | None = None
    sequence: int | None = None
    key: str | None = None
    timestamp: datetime | None = None
    """When the decision occurred."""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def acknowledged(self) -> bool:
        """Whether the sender is told that this delivery is done."""
        return self.key is not None and self.status is not None and 200 <= self.status <= 299
