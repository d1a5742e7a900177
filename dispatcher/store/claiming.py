"""Claiming due lanes: how many each endpoint's pace allows, where to look for them, what came."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from dispatcher.clock import seconds
from dispatcher.core.lease import SETTLE_SECONDS
from dispatcher.core.pace import (
    BEGIN_SECONDS,
    Allowance,
    Pace,
    allowance,
    claimed,
    next_seconds,
    warmed,
)
from dispatcher.core.values import Claim, Entry, Gap, Lane, Wanted
from dispatcher.store.looks import WHOLE_SECONDS, Look, Marks, Whole
from dispatcher.store.messages import Plans, begin, begin_bare, run_bare
from dispatcher.store.pacing import Taken, paces_of, taking, write
from dispatcher.store.pool import Connection
from dispatcher.store.session import Sessions
from sink.contract.envelope import BODY_BYTES_MAX
from sink.contract.failpoints import failpoint
from sink.contract.states import BreakerState

AHEAD, AHEAD_FAR = "1 hour", "100 years"
"""How far in the database's future a claim looks for entries, and where it found one missing."""


class _Head(NamedTuple):
    """The first row of a lane, as `lane_claim` returns it. From `sequence` on it is an `Entry`."""

    endpoint_id: int
    subject_id: int
    delivered_sequence: int
    last_sequence: int
    priority: int
    due_at: datetime
    tried_us: int
    gap: bool
    sequence: int | None
    number: int | None
    key: UUID | None
    created_at: datetime | None
    traceparent: str | None
    body: bytes | None
    rescued: int | None
    forgotten: bool | None


_LANE = itemgetter(0, 1)
_ENTRY = slice(_Head._fields.index("sequence"), None)


@dataclass(frozen=True, slots=True)
class _Found:
    """A due lane, and what a claim found in it."""

    head: _Head
    entries: tuple[Entry, ...]

    @property
    def whole(self) -> bool:
        """Whether it is leased: its next entry is there."""
        return self.head.sequence is not None and not self.head.gap


_Paced = dict[int, tuple[Taken, Allowance]]
"""Endpoints that are not sent to freely: their pace under its lock, and what it allows."""


class _MissingError(Exception):
    """An entry was not found within `AHEAD`; the claim is rolled back."""


class _PacedError(Exception):
    """An endpoint is not sent to freely any more; the claim is rolled back."""


class Claimer:
    """Claims for one process, and remembers where to look."""

    def __init__(self, sessions: Sessions) -> None:
        """`sessions` is shared with the rest of the store."""
        self._sessions = sessions
        self._marks = Marks()
        self._whole = Whole(WHOLE_SECONDS)
        self._free: set[int] = set()
        """Endpoints that were sent to freely when they were last looked at."""

    async def claim(self, wanted: Wanted, started: float) -> Claim:
        """Lease due lanes; those that turn out to have nothing for their endpoint become idle."""
        found, paced = await self._leased(wanted)
        empty = [each.head for each in found if each.head.sequence is None]
        gaps = [_gap(each.head._asdict()) for each in found if each.head.gap]
        if empty:
            emptied = await self._sessions.rows("lane_empty", _empty(empty))
            gaps += [_gap(row) for row in emptied if row["gap"]]
        lanes = [
            _lane(each, wanted, paced.get(each.head.endpoint_id), started)
            for each in found
            if each.whole
        ]
        held = tuple(id_ for id_, (each, allowed) in paced.items() if _holds(each, allowed))
        warm = tuple(id_ for id_, (each, _) in paced.items() if each.pace != _warm(each))
        rated = {id_: allowed.lanes for id_, (_, allowed) in paced.items() if allowed.rate}
        return Claim(lanes, gaps, held, warm, rated, _again(paced))

    async def _leased(self, wanted: Wanted) -> tuple[list[_Found], _Paced]:
        ahead = AHEAD
        while True:
            try:
                return await self._sessions.transaction(
                    partial(self._lease, wanted=wanted, ahead=ahead), begins=True
                )
            except _MissingError:
                ahead = AHEAD_FAR
            except _PacedError:
                self._free.clear()

    async def _lease(
        self, connection: Connection, wanted: Wanted, ahead: str
    ) -> tuple[list[_Found], _Paced]:
        whole = self._whole.begin()
        asked = [id_ for id_ in wanted.lanes if whole or not self._marks.knows(id_)]
        paced: _Paced = {}
        if not asked and wanted.lanes.keys() <= self._free:
            found = await self._lease_freely(connection, wanted, ahead)
        else:
            found, paced = await self._lease_paced(connection, wanted, asked, ahead, whole=whole)
        if found:
            failpoint("D1")
        return found, paced

    async def _lease_freely(
        self, connection: Connection, wanted: Wanted, ahead: str
    ) -> list[_Found]:
        """Claim in the message that asks whether anything limits it: as a rule nothing does."""
        allowed = {id_: Allowance(n, wanted.entries_per_lane) for id_, n in wanted.lanes.items()}
        looks = self._marks.looks(dict.fromkeys(allowed), whole=False)
        paces, rows = await begin_bare(
            connection,
            taking(wanted.lanes.keys(), free_too=False),
            ("lane_claim", _leasing(wanted, allowed, ahead) | _looking(looks)),
        )
        if paces:
            raise _PacedError
        return self._taken_down(rows, allowed, ahead, whole=False)

    async def _lease_paced(
        self,
        connection: Connection,
        wanted: Wanted,
        asked: Sequence[int],
        ahead: str,
        *,
        whole: bool,
    ) -> tuple[list[_Found], _Paced]:
        steps = [taking(wanted.lanes.keys(), free_too=False)]
        if asked:
            steps.append(("lane_priorities", {"endpoint_ids": asked}))
        pace_rows, *priorities = await begin(connection, *steps, plans=Plans.KEPT)
        for row in chain.from_iterable(priorities):
            self._marks.know(row["endpoint_id"], row["priority"])
        paces = paces_of(pace_rows)
        self._free = (self._free | wanted.lanes.keys()) - paces.keys()
        paced = {
            id_: (
                each,
                allowance(
                    _warm(each), each.limits, wanted.lanes[id_], wanted.entries_per_lane, each.at
                ),
            )
            for id_, each in paces.items()
        }
        allowed = {
            id_: paced[id_][1] if id_ in paced else Allowance(lanes, wanted.entries_per_lane)
            for id_, lanes in wanted.lanes.items()
        }
        allowed = {id_: each for id_, each in allowed.items() if each.lanes}
        looks = self._marks.looks(_fresh(allowed), whole=whole)
        rows = []
        if looks:
            parameters = _leasing(wanted, allowed, ahead) | _looking(looks)
            rows = await run_bare(connection, "lane_claim", parameters)
        found = self._taken_down(rows, allowed, ahead, whole=whole)
        await _charge(connection, wanted, paced, found)
        return found, paced

    def _taken_down(
        self, rows: list[Any], allowed: Mapping[int, Allowance], ahead: str, *, whole: bool
    ) -> list[_Found]:
        """Note up to where was claimed, and return what was."""
        found = _found(rows)
        if ahead != AHEAD_FAR and not all(each.whole for each in found):
            raise _MissingError
        fresh = _fresh(allowed)
        self._marks.found(
            (
                (each.head.endpoint_id, each.head.priority, each.head.due_at)
                for each in found
                # Where a look began elsewhere, it does not say what lies before it.
                if fresh[each.head.endpoint_id] is None
            ),
            whole=whole,
        )
        if whole:
            self._whole.done()
        return found


def _fresh(allowed: Mapping[int, Allowance]) -> dict[int, datetime | None]:
    return {id_: each.fresh_from for id_, each in allowed.items()}


async def _charge(
    connection: Connection,
    wanted: Wanted,
    paced: _Paced,
    found: Sequence[_Found],
) -> None:
    counts: Counter[int] = Counter()
    for lane in found if paced else ():
        counts[lane.head.endpoint_id] += len(lane.entries) if lane.whole else 0
    for id_, (each, allowed) in paced.items():
        after = claimed(
            _warm(each), allowed, counts[id_], each.at, wanted.token, wanted.lease_seconds
        )
        await write(connection, each.pace, after)


def _found(rows: list[Any]) -> list[_Found]:
    found = []
    for _, of_lane in groupby(rows, key=_LANE):
        lane = list(of_lane)
        # By position: names take as long again, and there are thousands a second.
        found.append(_Found(_Head._make(lane[0]), tuple([Entry(*row[_ENTRY]) for row in lane])))
    return found


def _leasing(wanted: Wanted, allowed: dict[int, Allowance], ahead: str) -> dict[str, object]:
    return {
        "endpoint_ids": list(allowed),
        "lanes": [each.lanes for each in allowed.values()],
        "entries": [each.entries for each in allowed.values()],
        "token": wanted.token,
        "lease_seconds": float(wanted.lease_seconds),
        "ahead": ahead,
        "bytes": BODY_BYTES_MAX,
    }


def _looking(looks: Sequence[Look]) -> dict[str, object]:
    return {
        "look_endpoint_ids": [look.endpoint_id for look in looks],
        "look_priorities": [look.priority for look in looks],
        "look_from": [look.due_from for look in looks],
        "look_to": [look.due_to for look in looks],
    }


def _warm(taken: Taken) -> Pace:
    return warmed(taken.pace, taken.at)


def _holds(taken: Taken, allowed: Allowance) -> bool:
    """Return whether what was claimed before may not be begun either; a probe may."""
    probing = taken.pace.breaker is BreakerState.HALF_OPEN
    return not allowed.lanes and allowed.rate is None and not probing


def _again(paced: _Paced) -> float | None:
    """Return when the first of the rates that allow nothing now will, if there is one."""
    return min(
        (
            next_seconds(_warm(each), allowed.rate, each.at)
            for each, allowed in paced.values()
            if allowed.rate and not allowed.lanes
        ),
        default=None,
    )


def _empty(lanes: Sequence[_Head]) -> dict[str, object]:
    return {
        "endpoint_ids": [lane.endpoint_id for lane in lanes],
        "subject_ids": [lane.subject_id for lane in lanes],
        "last_sequences": [lane.last_sequence for lane in lanes],
    }


def _gap(row: Mapping[str, Any]) -> Gap:
    return Gap(
        endpoint_id=row["endpoint_id"],
        subject_id=row["subject_id"],
        delivered_sequence=row["delivered_sequence"],
        found=row.get("sequence"),
    )


def _lane(
    found: _Found, wanted: Wanted, paced: tuple[Taken, Allowance] | None, started: float
) -> Lane:
    until = trusted = started + wanted.lease_seconds
    if paced is not None and paced[1].rate is not None:
        longest = paced[0].limits.attempt_seconds
        trusted = min(until, seconds() + BEGIN_SECONDS + longest + SETTLE_SECONDS)
    head = found.head
    return Lane(
        endpoint_id=head.endpoint_id,
        subject_id=head.subject_id,
        token=wanted.token,
        delivered_sequence=head.delivered_sequence,
        entries=found.entries,
        trusted_until=trusted,
        settle_until=until,
        claimed_at=started,
        tried_seconds=head.tried_us / 1_000_000,
    )
