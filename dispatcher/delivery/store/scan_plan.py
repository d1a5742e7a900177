"""What a claim scans, and what its answer changes: decisions without I/O. CLAIM.md has the theory.

| memory | of each | changes | what it may forget |
|---|---|---|---|
| free | endpoint | added when its limits were read and it had none, else removed | all of it |
| priorities | endpoint | grow by routing and by reading the index | all: a full scan reads them |
| cursor | endpoint, priority | forward with each claim, back with a full scan | all of it |
| turn | endpoint | + 1 with each claim | all of it |
| full scan timer | endpoint | restarts with each full scan | all of it |
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from holdfast.dispatcher.delivery.store.scan_ranges import (
    FULL_SCAN_SECONDS,
    FullScanTimer,
    ScanCursors,
    ScanRange,
)
from holdfast.dispatcher.shared.clock import seconds


@dataclass(frozen=True, slots=True)
class Scan:
    """The scan of one claim."""

    free: bool
    """No endpoint had a limit when last read: claim and COMMIT in one message."""
    full: frozenset[int]
    """Endpoints that are scanned from the beginning."""
    unknown: Sequence[int]
    """Endpoints whose priorities are read from the index as well."""


AHEAD = Scan(free=True, full=frozenset(), unknown=())
"""In the transaction that routes: new lanes are due ahead of every cursor."""


class ScanPlan:
    """The memory of one process. The database decides; a wrong value here costs only time."""

    def __init__(
        self, full_scan_seconds: float = FULL_SCAN_SECONDS, clock: Callable[[], float] = seconds
    ) -> None:
        """`full_scan_seconds` is the minimum time between two full scans of an endpoint."""
        self._free: set[int] = set()
        self._cursors = ScanCursors()
        self._timers: dict[int, FullScanTimer] = defaultdict(
            partial(FullScanTimer, full_scan_seconds, clock)
        )

    def is_free(self, endpoint_ids: Collection[int]) -> bool:
        """Return whether none had a limit when it was last read, and there is anything to scan."""
        return self._free.issuperset(endpoint_ids) and any(map(self._cursors.knows, endpoint_ids))

    def next(self, endpoint_ids: Collection[int]) -> Scan:
        """Return how to claim now."""
        full = frozenset(id_ for id_ in endpoint_ids if self._timers[id_].begin())
        unknown = [id_ for id_ in endpoint_ids if id_ in full or not self._cursors.knows(id_)]
        return Scan(self.is_free(endpoint_ids), full, unknown)

    def ranges(self, scan: Scan, fresh_from: Mapping[int, datetime | None]) -> list[ScanRange]:
        """Return what to scan of each endpoint in `fresh_from`, in this order."""
        return self._cursors.ranges(fresh_from, full=scan.full)

    def limits(self, endpoint_ids: Collection[int], limited: Collection[int]) -> None:
        """Record which of the endpoints have a limit."""
        self._free = self._free.union(endpoint_ids).difference(limited)

    def know(self, priorities: Iterable[tuple[int, int]]) -> bool:
        """Record endpoints with priorities of their lanes; returns whether any is new."""
        new = [self._cursors.know(*each) for each in priorities]
        return any(new)

    def done(
        self,
        scan: Scan,
        fresh_from: Mapping[int, datetime | None],
        found: Iterable[tuple[int, int, datetime]],
    ) -> None:
        """Record a committed claim: what was scanned, and what was found there.

        `found` has endpoint, priority and when each lane became due.
        """
        self._cursors.end_turn(fresh_from)
        # A scan that starts with fresh lanes says nothing about those before them.
        self._cursors.found(
            (each for each in found if fresh_from.get(each[0]) is None), full=scan.full
        )
        for id_ in scan.full.intersection(fresh_from):
            self._timers[id_].done()
