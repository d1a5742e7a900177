"""The state of one entry at one endpoint, and which batches are new to a follower. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sink.contract.states import BreakerState, EndpointState


class Stage(StrEnum):
    """What an entry waits for at an endpoint, or how it ended there."""

    DELIVERED = "delivered"
    DEAD = "dead"
    PASSED = "passed"
    """The lane is beyond it, and no attempt of it that was delivered is on record."""

    UNROUTED = "unrouted"
    """A dispatcher has to route its batch first."""

    SENDING = "sending"
    """A dispatcher has it, or one that died had it, until the lease ends."""

    DUE = "due"
    BEHIND = "behind"
    """An entry of its subject with a lower sequence goes first, or the lane will pass it."""

    STOPPED = "stopped"
    """It is next, and its lane waits for a person."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an entry stands."""

    stage: Stage
    behind: int | None = None
    """The sequence that goes first, of BEHIND; None where the endpoint takes the type no more."""

    until: datetime | None = None
    """When it was DELIVERED or DEAD, is DUE, or its lease ends (SENDING)."""

    held_up: str | None = None
    """Why nothing at all is sent to the endpoint now, where the entry still has to be."""


def standing(row: Mapping[str, Any], sequence: int) -> Standing:
    """Judge a row of `entry_delivery.sql` for the entry of this sequence.

    The row is of an entry that is stored: a lane without a head up to there does not want it, since
    the endpoint takes other types now.
    """
    if row["dead_reason"] is not None:
        return Standing(Stage.DEAD, until=row["died_at"])
    if row["delivered_at"] is not None:
        return Standing(Stage.DELIVERED, until=row["delivered_at"])
    last, delivered, head = row["last_sequence"], row["delivered_sequence"], row["head_sequence"]
    why = _held_up(row)
    if last is None or last < sequence:
        return Standing(Stage.UNROUTED, held_up=why)
    if delivered >= sequence:
        return Standing(Stage.PASSED)
    if head != sequence:
        return Standing(Stage.BEHIND, behind=head, held_up=why)
    if row["lease_until"] is not None:
        return Standing(Stage.SENDING, until=row["lease_until"])
    if row["due_at"] is None:
        return Standing(Stage.STOPPED, held_up=why)
    return Standing(Stage.DUE, until=row["due_at"], held_up=why)


def _held_up(row: Mapping[str, Any]) -> str | None:
    if row["endpoint_state"] != EndpointState.ACTIVE:
        return f"the endpoint is {row['endpoint_state']}"
    if row["breaker"] == BreakerState.OPEN:
        return "its breaker is open"
    if row["held_until"] is not None:
        return "its receiver asked for time"
    return None


PATIENCE_SECONDS = 600.0
PASSED_OVER_MAX = 1_000


class BatchCursor:
    """Numbers seen so far."""

    def __init__(self, after: int) -> None:
        """`after`: nothing up to this number is looked for."""
        self.after = after
        self._missing: dict[int, float] = {}

    @property
    def missing(self) -> list[int]:
        """The numbers up to `after` that are still looked for, the lowest first."""
        return sorted(self._missing)

    def see(self, numbers: Collection[int], moment: float) -> None:
        """Take note of numbers that appeared, at a moment of a clock in seconds."""
        for number in numbers:
            self._missing.pop(number, None)
        newest = max(numbers, default=self.after)
        passed_over = set(range(max(self.after, newest - PASSED_OVER_MAX) + 1, newest))
        self._missing |= dict.fromkeys(passed_over - set(numbers), moment)
        self.after = max(self.after, newest)
        kept = [n for n, at in self._missing.items() if moment - at < PATIENCE_SECONDS]
        self._missing = {n: self._missing[n] for n in sorted(kept)[-PASSED_OVER_MAX:]}
