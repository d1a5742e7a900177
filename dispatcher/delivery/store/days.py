"""Which days' entries a claim looks at, so that its cost does not grow with the days stored.

A statement opens every partition that it cannot rule out when it begins. Nearly all lanes have
entries of today; where some begin earlier, claims look further back for as long as they do.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dispatcher.delivery.store.looks import BEGINNING, END

OLD = timedelta(hours=22)
"""Less than `lane_claim` looks back by itself, so that a range is not made narrow too soon."""


class Range(NamedTuple):
    """When the entries that a claim looks at were written, by the database's clock."""

    since: datetime
    """And within the last day."""
    ahead: str
    """How far in its future: it may have been set back."""


NEAR, ANY_TIME = Range(END, "1 hour"), Range(BEGINNING, "100 years")
"""What is looked at first, and where an entry was missing."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Days:
    """The range of a process's claims; this machine's clock decides on its speed alone."""

    def __init__(self, now: Callable[[], datetime] = _utc_now) -> None:
        """Begin with `NEAR`."""
        self._now = now
        self.range = NEAR

    def widen(self, begins: Iterable[datetime]) -> Range:
        """Return where to look for what was not found; `begins` is of lanes that begin earlier."""
        oldest = min(begins, default=None)
        if oldest is None:
            return ANY_TIME
        # As far again, or a backlog of many days would be widened to day by day.
        further = max(self._now() - oldest, timedelta(0))
        self.range = NEAR._replace(since=oldest - min(further, oldest - BEGINNING))
        return self.range

    def narrow(self, heads: Iterable[datetime | None]) -> None:
        """Return to `NEAR` where a look at the whole met no old head."""
        before = self._now() - OLD
        if not any(head is not None and head < before for head in heads):
            self.range = NEAR
