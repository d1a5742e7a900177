"""One request that `holdfast listen` received, and its answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

REFUSED = "refused"
"""Not a genuine delivery; `reason` says why."""
FAILED = "failed"
"""A delivery that was failed on purpose and not applied."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A received request. A refused one has no `type` or `key`: its body is not parsed."""

    number: int
    """From 1, in the order of arrival."""
    at: datetime
    outcome: str
    """A `ReceiptOutcome`, `refused` or `failed`."""
    status: int | None
    """The status of the answer; None: the connection is cut after applying."""
    bytes: int
    """Size of the body."""
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
        """Whether the answer acknowledges the delivery."""
        return self.key is not None and self.status is not None and 200 <= self.status <= 299
