"""What a claim scans, and what its answer changes: decisions without I/O. CLAIM.md has the theory.

| memory | of each | changes | what it may forget |
|---|---|---|---|
| free | endpoint | added when its limits were read and it had none, else removed | all of it |
| priorities | endpoint | grow by routing and by reading the index | all: a full scan reads them |
| cursor | endpoint, priority | forward with each claim, back with a full scan | all of it |
| turn | endpoint | + 1 with each claim | all of it |
| full scan timer | endpoint | restarts with each full scan | all of it |

An index keeps the entries of changed rows until no snapshot can see them. While a session holds an
old snapshot, a scan from the front of the index walks over all of them. Claimed lanes leave such
entries in front, so a claim scans from a cursor. A lane can become due behind a cursor (a long
transaction, a claim that was rolled back); a full scan finds it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from holdfast.dispatcher.shared.clock import seconds

BEGINNING = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)

SLACK = timedelta(seconds=0.5)
"""How far a cursor stays behind the last lane found: transactions commit in another order."""

FULL_SCAN_SECONDS = 1.0
"""Minimum time between two full scans."""

FULL_SCAN_SHARE = 20
"""Time between two full scans, in multiples of the duration of the last one."""

FULL_SCAN_SECONDS_MAX = 10.0
"""Maximum time between two full scans: a long one may have waited for a lock."""

FAIR_EVERY = 8
"""Every Nth claim starts with less urgent lanes, so that urgent ones cannot starve them."""


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Lanes of one priority that became due from `due_from` until before `due_to`."""

    endpoint_id: int
    priority: int
    due_from: datetime
    due_to: datetime


class FullScanTimer:
    """When the next full scan is due."""

    def __init__(
        self, shortest: float = FULL_SCAN_SECONDS, clock: Callable[[], float] = seconds
    ) -> None:
        """`shortest` is in seconds."""
        self._shortest = shortest
        self._clock = clock
        self._due_at = -float("inf")
        self._began = 0.0

    def begin(self) -> bool:
        """Return whether a full scan is due; if so, it starts now."""
        self._began = self._clock()
        return self._began >= self._due_at

    def done(self) -> None:
        """Record a completed full scan."""
        now = self._clock()
        pause = max(self._shortest, FULL_SCAN_SHARE * (now - self._began))
        self._due_at = now + min(pause, FULL_SCAN_SECONDS_MAX)


class ScanCursors:
    """Up to where the due lanes of each endpoint and priority have been claimed."""

    def __init__(self) -> None:
        self._cursors: dict[int, dict[int, datetime]] = defaultdict(dict)
        self._claims: Counter[int] = Counter()

    def knows(self, endpoint_id: int) -> bool:
        """Return whether any priority of the endpoint is known."""
        return bool(self._cursors.get(endpoint_id))

    def know(self, endpoint_id: int, priority: int) -> bool:
        """Scan this priority from now on; returns whether it is new."""
        cursors = self._cursors[endpoint_id]
        new = priority not in cursors
        cursors.setdefault(priority, BEGINNING)
        return new

    def ranges(
        self, fresh_from: Mapping[int, datetime | None], *, full: Collection[int]
    ) -> list[ScanRange]:
        """Return the ranges of a claim in scan order, for each endpoint in `fresh_from`.

        With a moment there, lanes that became due from then on come first. Endpoints in `full` are
        scanned from the beginning.
        """
        ranges: list[ScanRange] = []
        for endpoint_id, fresh in fresh_from.items():
            cursors = self._cursors[endpoint_id]
            order = sorted(cursors)
            turn, rest = divmod(self._claims[endpoint_id] + 1, FAIR_EVERY)
            if rest == 0 and len(order) > 1:
                # Each less urgent priority in turn, so that those in the middle do not starve.
                order.insert(0, order.pop(-1 - turn % (len(order) - 1)))
            if fresh is not None:
                ranges += [ScanRange(endpoint_id, each, fresh, END) for each in order]
            end = END if fresh is None else fresh
            begin = dict.fromkeys(order, BEGINNING) if endpoint_id in full else cursors
            ranges += [ScanRange(endpoint_id, each, begin[each], end) for each in order]
        return ranges

    def end_turn(self, endpoint_ids: Iterable[int]) -> None:
        """Record a completed claim; a repeated one has the same ranges."""
        self._claims.update(dict.fromkeys(endpoint_ids, 1))

    def move(self, rows: Iterable[tuple[int, int, datetime]], *, full: Collection[int]) -> None:
        """Record what a claim found: endpoint, priority and when each lane became due.

        A cursor moves back only after a full scan of its endpoint.
        """
        last: dict[tuple[int, int], datetime] = {}
        for endpoint_id, priority, due_at in rows:
            newest = last.get((endpoint_id, priority), due_at)
            last[endpoint_id, priority] = max(newest, due_at)
        for (endpoint_id, priority), due_at in last.items():
            cursor = due_at - SLACK
            if endpoint_id not in full:
                cursor = max(cursor, self._cursors[endpoint_id].get(priority, cursor))
            self._cursors[endpoint_id][priority] = cursor


@dataclass(frozen=True, slots=True)
class Scan:
    """The scan of one claim."""

    free: bool
    """No endpoint had a limit when last read: claim and COMMIT in one message."""
    full: frozenset[int]
    """Endpoints that are scanned from the beginning."""
    unknown: Sequence[int]
    """Endpoints whose priorities are read from the index as well."""


ROUTED_SCAN = Scan(free=True, full=frozenset(), unknown=())
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
        due: Iterable[tuple[int, int, datetime]],
    ) -> None:
        """Record a committed claim: what was scanned, and what was found there.

        `due` has endpoint, priority and when each lane became due.
        """
        self._cursors.end_turn(fresh_from)
        # A scan that starts with fresh lanes says nothing about those before them.
        self._cursors.move(
            (each for each in due if fresh_from.get(each[0]) is None), full=scan.full
        )
        for id_ in scan.full.intersection(fresh_from):
            self._timers[id_].done()
