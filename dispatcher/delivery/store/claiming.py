"""Claims due lanes: gets scan ranges from the plan, runs the statements, records the result in it.

CLAIM.md explains why a claim may miss a lane, and what finds it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import errors
from psycopg.rows import DictRow

from holdfast.dispatcher.delivery.rules.lease import SETTLE_SECONDS
from holdfast.dispatcher.delivery.rules.pace import (
    Allowance,
    Pace,
    allowance,
    as_of,
    claimed,
    next_seconds,
)
from holdfast.dispatcher.delivery.rules.values import Claim, ClaimRequest, Entry, Gap, Lane, Routed
from holdfast.dispatcher.delivery.store.messages import Plans, Step, begin, run_bare
from holdfast.dispatcher.delivery.store.pacing import LockedPace, pace_step, paces_of, write
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.routing import lock_few_batches
from holdfast.dispatcher.delivery.store.scan_plan import ROUTED_SCAN, Scan, ScanPlan, ScanRange
from holdfast.dispatcher.delivery.store.session import Sessions
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.contract.states import BreakerState


class Head(NamedTuple):
    """The first row of a lane, as `lane_claim` returns it. From `sequence` on it is an `Entry`."""

    endpoint_id: int
    subject_id: int
    delivered_sequence: int
    last_sequence: int
    priority: int
    due_at: datetime
    tried_us: int
    sequence: int | None
    number: int | None
    key: UUID | None
    created_at: datetime | None
    traceparent: str | None
    body: bytes | None
    rescued: int | None
    forgotten: bool | None


_LANE = itemgetter(0, 1)
_ENTRY = slice(Head._fields.index("sequence"), None)


@dataclass(frozen=True, slots=True)
class DueLane:
    """A due lane, and what a claim found in it."""

    head: Head
    entries: tuple[Entry, ...]

    @property
    def leased(self) -> bool:
        """Whether the lane is leased: its next entry was found."""
        return self.head.sequence is not None


def due_step(allowed: Mapping[int, Allowance], ranges: Sequence[ScanRange], *, free: bool) -> Step:
    """Lock up to `allowed` due lanes in `ranges`; `free` skips endpoints with a limit."""
    return "claiming/lane_due", {
        "free": free,
        "endpoint_ids": list(allowed),
        "lanes": [each.lanes for each in allowed.values()],
        "entries": [each.entries for each in allowed.values()],
        "range_endpoint_ids": [each.endpoint_id for each in ranges],
        "range_priorities": [each.priority for each in ranges],
        "range_from": [each.due_from for each in ranges],
        "range_to": [each.due_to for each in ranges],
    }


def claim_step(request: ClaimRequest) -> Step:
    """Lease the lanes that `due_step` locked in the same transaction."""
    return "claiming/lane_claim", {
        "token": request.token,
        "lease_seconds": float(request.lease_seconds),
        "bytes": BODY_BYTES_MAX,
    }


def due_lanes(rows: Sequence[Any]) -> list[DueLane]:
    """Return the bare rows of `claim_step` by lane."""
    lanes = []
    for _, of_lane in groupby(rows, key=_LANE):
        lane = list(of_lane)
        # By position: access by name takes twice as long, and there are thousands of rows a second.
        lanes.append(DueLane(Head._make(lane[0]), tuple([Entry(*row[_ENTRY]) for row in lane])))
    return lanes


def empty_step(lanes: Sequence[Head]) -> Step:
    """Decide about lanes whose next entry was not found; returns those that did not change."""
    return "claiming/lane_empty", {
        "endpoint_ids": [lane.endpoint_id for lane in lanes],
        "subject_ids": [lane.subject_id for lane in lanes],
        "delivered": [lane.delivered_sequence for lane in lanes],
        "last": [lane.last_sequence for lane in lanes],
    }


def gap_of(row: Mapping[str, Any]) -> Gap:
    """Return the gap in a row of `empty_step`."""
    return Gap(**{name: row[name] for name in Gap.__slots__})


_Paced = dict[int, tuple[LockedPace, Allowance]]
"""Endpoints with a limit: their pace under its lock, and what it allows."""


class _Leased(NamedTuple):
    """What one transaction found."""

    lanes: Sequence[DueLane]
    paced: _Paced
    fresh: Mapping[int, datetime | None]
    """Endpoints that were scanned; with a moment, lanes that became due from then on first."""
    learned: bool
    """Whether another claim scans more."""


class Claimer:
    """Claims for one process."""

    def __init__(self, sessions: Sessions) -> None:
        """`sessions` is shared with the rest of the store."""
        self._sessions = sessions
        self._plan = ScanPlan()

    async def claim(self, request: ClaimRequest, started: float) -> Claim:
        """Lease due lanes, and decide about those without their next entry.

        Claims again when it leased nothing and found further ranges to scan.
        """
        gaps: list[Gap] = []
        while True:
            scan = self._plan.next(request.lanes)
            lease = self._lease_freely if scan.free else self._lease_limited
            work = partial(lease, request=request, scan=scan)
            leased = await self._sessions.transaction(work, begins=True)
            more_gaps, dated = await self._decide(scan, leased)
            gaps += more_gaps
            if any(each.leased for each in leased.lanes) or not (leased.learned or dated):
                return _to_claim(leased, gaps, request, started)

    async def route_and_claim(
        self, request: ClaimRequest, started: float
    ) -> tuple[Routed, Claim] | None:
        """Route new batches and lease what is due then, in one transaction.

        Returns None and does nothing where there is too much to route, or an endpoint has a limit.
        """
        if not self._plan.is_free(request.lanes):
            return None
        work = partial(self._route_and_lease, request=request)
        done = await self._sessions.transaction(work, begins=True)
        if done is None:
            return None
        routed, leased = done
        self.know(routed)
        gaps, _ = await self._decide(ROUTED_SCAN, leased)
        return routed, _to_claim(leased, gaps, request, started)

    def know(self, routed: Routed) -> None:
        """Scan the priorities of newly routed lanes from now on, before the next full scan."""
        self._plan.know((id_, priority) for id_, priority in routed.priorities)

    async def _decide(self, scan: Scan, leased: _Leased) -> tuple[list[Gap], bool]:
        """Record a committed claim, and decide about lanes that it did not lease.

        Returns those with a missing entry, and whether others are due again with another date.
        """
        heads = [each.head for each in leased.lanes]
        due = [(head.endpoint_id, head.priority, head.due_at) for head in heads]
        self._plan.done(scan, leased.fresh, due)
        empty = [head for head in heads if head.sequence is None]
        rows = await self._sessions.rows(*empty_step(empty)) if empty else []
        gaps = [gap_of(row) for row in rows if row["gap"]]
        return gaps, not all(row["gap"] or row["idle"] for row in rows)

    async def _lease_freely(
        self, connection: Connection, request: ClaimRequest, scan: Scan
    ) -> _Leased:
        """Lease lanes of endpoints without a limit: claim and COMMIT in one round trip.

        Endpoints that have one by now are left out; another claim scans them.
        """
        (limits, *priorities, _), rows = await run_bare(
            connection,
            *_first_steps(request, scan),
            *self._claiming_freely(scan, request),
            begins=True,
            commits=True,
        )
        limited = self._limited(limits, request)
        new = self._plan.know(_pairs(priorities))
        fresh = dict.fromkeys(request.lanes.keys() - limited.keys())
        return _Leased(due_lanes(rows), {}, fresh, bool(limited) or new)

    async def _lease_limited(
        self, connection: Connection, request: ClaimRequest, scan: Scan
    ) -> _Leased:
        """Lease what the limits of the endpoints allow, under the locks of their paces."""
        limits, *priorities = await begin(
            connection, *_first_steps(request, scan), plans=Plans.GENERIC
        )
        self._plan.know(_pairs(priorities))
        paced = {
            id_: (
                each,
                allowance(
                    _now(each), each.limits, request.lanes[id_], request.entries_per_lane, each.at
                ),
            )
            for id_, each in self._limited(limits, request).items()
        }
        allowed = _unlimited(request) | {id_: each for id_, (_, each) in paced.items()}
        allowed = {id_: each for id_, each in allowed.items() if each.lanes}
        fresh = {id_: each.fresh_from for id_, each in allowed.items()}
        lanes: list[DueLane] = []
        if ranges := self._plan.ranges(scan, fresh):
            last = due_step(allowed, ranges, free=False), claim_step(request)
            _, rows = await run_bare(connection, *last)
            lanes = due_lanes(rows)
        await _charge(connection, request, paced, lanes)
        if lanes:
            failpoint("D1")
        return _Leased(lanes, paced, fresh, learned=False)

    async def _route_and_lease(
        self, connection: Connection, request: ClaimRequest
    ) -> tuple[Routed, _Leased] | None:
        try:
            # Lock order: paces before lanes, as everywhere, so that no two transactions deadlock.
            limits, routing = await lock_few_batches(
                connection, pace_step(request.lanes.keys(), free_too=False)
            )
            if self._limited(limits, request) or routing is None:
                return None
            failpoint("D18")
            last = self._claiming_freely(ROUTED_SCAN, request)
            answers, rows = await run_bare(
                connection, *routing.before, routing.route, *routing.after, *last, commits=True
            )
        except errors.LockNotAvailable:
            return None
        routed = Routed(**answers[len(routing.before)][0])
        return routed, _Leased(due_lanes(rows), {}, dict.fromkeys(request.lanes), learned=False)

    def _limited(self, limits: list[DictRow], request: ClaimRequest) -> dict[int, LockedPace]:
        """Record and return which endpoints have a limit; their pace is locked."""
        limited = paces_of(limits)
        self._plan.limits(request.lanes, limited)
        return limited

    def _claiming_freely(self, scan: Scan, request: ClaimRequest) -> tuple[Step, Step]:
        allowed = _unlimited(request)
        ranges = self._plan.ranges(scan, dict.fromkeys(allowed))
        return due_step(allowed, ranges, free=True), claim_step(request)


def _first_steps(request: ClaimRequest, scan: Scan) -> list[Step]:
    """Lock the paces that limit, and read the priorities that the plan does not know."""
    steps = [pace_step(request.lanes.keys(), free_too=False)]
    if scan.unknown:
        steps.append(("claiming/lane_priorities", {"endpoint_ids": scan.unknown}))
    return steps


def _unlimited(request: ClaimRequest) -> dict[int, Allowance]:
    return {id_: Allowance(n, request.entries_per_lane) for id_, n in request.lanes.items()}


def _pairs(priorities: Sequence[Sequence[DictRow]]) -> list[tuple[int, int]]:
    return [(row["endpoint_id"], row["priority"]) for rows in priorities for row in rows]


def _to_claim(leased: _Leased, gaps: Sequence[Gap], request: ClaimRequest, started: float) -> Claim:
    paced = leased.paced
    lanes = [
        _lane(each, request, paced.get(each.head.endpoint_id), started)
        for each in leased.lanes
        if each.leased
    ]
    held = tuple(id_ for id_, (each, allowed) in paced.items() if _holds(each, allowed))
    closed = tuple(
        id_ for id_, (each, _) in paced.items() if each.pace.breaker is not _now(each).breaker
    )
    rated = {id_: allowed.lanes for id_, (_, allowed) in paced.items() if allowed.rate}
    return Claim(lanes, gaps, held, closed, rated, _retry_after(paced))


async def _charge(
    connection: Connection,
    request: ClaimRequest,
    paced: _Paced,
    lanes: Sequence[DueLane],
) -> None:
    counts: Counter[int] = Counter()
    for lane in lanes if paced else ():
        counts[lane.head.endpoint_id] += len(lane.entries) if lane.leased else 0
    for id_, (each, allowed) in paced.items():
        after = claimed(
            _now(each), allowed, counts[id_], each.at, request.token, request.lease_seconds
        )
        await write(connection, each.pace, after)


def _now(locked: LockedPace) -> Pace:
    return as_of(locked.pace, locked.at)


def _holds(locked: LockedPace, allowed: Allowance) -> bool:
    """Return whether lanes claimed earlier must not be started either; a probe may start."""
    probing = locked.pace.breaker is BreakerState.HALF_OPEN
    return not allowed.lanes and allowed.rate is None and not probing


def _retry_after(paced: _Paced) -> float | None:
    """Return the seconds until the first exhausted rate allows a lane again."""
    return min(
        (
            next_seconds(_now(each), allowed.rate, each.at)
            for each, allowed in paced.values()
            if allowed.rate and not allowed.lanes
        ),
        default=None,
    )


def _lane(
    due_lane: DueLane,
    request: ClaimRequest,
    paced: tuple[LockedPace, Allowance] | None,
    started: float,
) -> Lane:
    until = trusted = started + request.lease_seconds
    if paced is not None and paced[1].rate is not None:
        longest = paced[0].limits.attempt_seconds
        trusted = min(until, seconds() + BEGIN_SECONDS + longest + SETTLE_SECONDS)
    head = due_lane.head
    return Lane(
        endpoint_id=head.endpoint_id,
        subject_id=head.subject_id,
        token=request.token,
        delivered_sequence=head.delivered_sequence,
        entries=due_lane.entries,
        trusted_until=trusted,
        settle_until=until,
        claimed_at=started,
        tried_seconds=head.tried_us / 1_000_000,
    )
