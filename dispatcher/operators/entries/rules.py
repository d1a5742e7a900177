"""The delivery state of an entry at an endpoint, and the cursor of a follower of batches. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.sink.contract.canonical import NotCanonical
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import BreakerState, EndpointState


def key_of(text: str) -> Key:
    """Parse a key as receivers get it; raises `CommandError` (usage) for any other text."""
    try:
        return Key.parse(text)
    except NotCanonical as error:
        raise CommandError(
            f"{error}. Nothing was changed.", ExitCode.USAGE, code="invalid_key"
        ) from None


class Stage(StrEnum):
    """The delivery state of an entry at an endpoint."""

    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELLED = "cancelled"
    """A person cancelled it before it left: it is never sent."""

    PASSED = "passed"
    """The lane is past it, and no delivery is on record."""

    UNROUTED = "unrouted"
    """No dispatcher has routed its batch yet."""

    SENDING = "sending"
    """Leased by a dispatcher, or by a crashed one until the lease ends."""

    DUE = "due"
    BEHIND = "behind"
    """An earlier entry of its subject is the head of the lane, or the lane will pass it."""

    STOPPED = "stopped"
    """It is the head, and its lane waits for a person."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The delivery state of an entry, with its figures."""

    stage: Stage
    behind: int | None = None
    """BEHIND: the sequence of the head; None when the endpoint no longer takes the type."""

    until: datetime | None = None
    """When it was DELIVERED, CANCELLED or became DEAD, is DUE, or its lease ends (SENDING)."""

    hold_reason: str | None = None
    """Why nothing is sent to the endpoint now, for an entry that still waits."""


def standing(row: Mapping[str, Any], sequence: int) -> Standing:
    """Return the state of the entry with this sequence, from a row of `entries/delivery`.

    `cancelled_at` is added to the row: when it was cancelled there, or None.

    The entry is stored: a lane without a head up to it does not take it, because the endpoint takes
    other types now.
    """
    if row["cancelled_at"] is not None:
        return Standing(Stage.CANCELLED, until=row["cancelled_at"])
    if row["dead_reason"] is not None:
        return Standing(Stage.DEAD, until=row["died_at"])
    if row["delivered_at"] is not None:
        return Standing(Stage.DELIVERED, until=row["delivered_at"])
    last, delivered, head = row["last_sequence"], row["delivered_sequence"], row["head_sequence"]
    why = _hold_reason(row)
    if last is None or last < sequence:
        return Standing(Stage.UNROUTED, hold_reason=why)
    if delivered >= sequence:
        return Standing(Stage.PASSED)
    if head != sequence:
        return Standing(Stage.BEHIND, behind=head, hold_reason=why)
    if row["lease_until"] is not None:
        return Standing(Stage.SENDING, until=row["lease_until"])
    if row["due_at"] is None:
        return Standing(Stage.STOPPED, hold_reason=why)
    return Standing(Stage.DUE, until=row["due_at"], hold_reason=why)


def _hold_reason(row: Mapping[str, Any]) -> str | None:
    if row["endpoint_state"] != EndpointState.ACTIVE:
        return f"the endpoint is {row['endpoint_state']}"
    if row["breaker"] == BreakerState.OPEN:
        return "its breaker is open"
    if row["held_until"] is not None:
        return "its receiver asked for time"
    return None


PATIENCE_SECONDS = 600.0
SKIPPED_MAX = 1_000


class BatchCursor:
    """The batch numbers that a follower has seen.

    A batch takes its number when its write begins and becomes visible when it commits, so a lower
    number may appear after a higher one. Skipped numbers are read again for `PATIENCE_SECONDS`;
    most never appear, because their transaction rolled back.
    """

    def __init__(self, after: int) -> None:
        """Follow numbers above `after`."""
        self.after = after
        self._missing: dict[int, float] = {}

    @property
    def missing(self) -> list[int]:
        """The skipped numbers up to `after` that may still appear, the lowest first."""
        return sorted(self._missing)

    def see(self, numbers: Collection[int], moment: float) -> None:
        """Record numbers that appeared, at `moment` of a clock in seconds."""
        for number in numbers:
            self._missing.pop(number, None)
        newest = max(numbers, default=self.after)
        skipped = set(range(max(self.after, newest - SKIPPED_MAX) + 1, newest))
        self._missing |= dict.fromkeys(skipped - set(numbers), moment)
        self.after = max(self.after, newest)
        kept = [n for n, at in self._missing.items() if moment - at < PATIENCE_SECONDS]
        self._missing = {n: self._missing[n] for n in sorted(kept)[-SKIPPED_MAX:]}
