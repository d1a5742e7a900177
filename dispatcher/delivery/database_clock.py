"""The database's time between two heartbeats.

Signatures carry it, so a dispatcher whose own clock is wrong signs like any other. Each heartbeat
measures it; in between it advances by `seconds`, which no change of the system's time moves.
"""

import time
from datetime import UTC, datetime

from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.wire import TOLERANCE_SECONDS


class DatabaseClock:
    """The database's time, and how far this host's is from it."""

    def __init__(self) -> None:
        self._ahead: float | None = None
        """From `seconds` to the database's time, as POSIX time."""

    def measured(self, at: datetime, began: float) -> None:
        """Record that the database's time was `at` within a call that started at `began`.

        A slow call measures only that the time lies within its duration.
        """
        posix = at.timestamp()
        latest, earliest = posix - began, posix - seconds()
        middle = (earliest + latest) / 2 if self._ahead is None else self._ahead
        self._ahead = min(max(middle, earliest), latest)

    def now(self) -> float:
        """Return the database's time as POSIX time; this host's before the first measurement."""
        return time.time() if self._ahead is None else seconds() + self._ahead

    def moment(self) -> datetime:
        """Return `now` in UTC."""
        return datetime.fromtimestamp(self.now(), UTC)

    @property
    def skew_seconds(self) -> float:
        """How far this host's clock is ahead of the database's; negative: behind."""
        return time.time() - self.now()

    @property
    def fault(self) -> str | None:
        """Why nothing may be claimed, or None.

        One of the two clocks is off by more than receivers accept, and nobody can tell which.
        """
        skew = self.skew_seconds
        if abs(skew) <= TOLERANCE_SECONDS:
            return None
        return (
            f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the"
            f" database's, more than the {TOLERANCE_SECONDS} s that receivers accept: nothing is"
            " claimed until both agree"
        )
