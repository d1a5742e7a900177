"""Claiming due lanes: how many each endpoint's pace allows, where to look for them, what came."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from psycopg import errors

from dispatcher.delivery.rules.lease import SETTLE_SECONDS
from dispatcher.delivery.rules.pace import Allowance, Pace, allowance, as_of, claimed, next_seconds
from dispatcher.delivery.rules.values import Claim, Lane, Routed, Wanted
from dispatcher.delivery.store.claimed_rows import (
    Found,
    emptying,
    found_in,
    gap_of,
    leasing,
)
from dispatcher.delivery.store.days import ANY_TIME, Days, Range
from dispatcher.delivery.store.looks import WHOLE_SECONDS, Marks, Whole
from dispatcher.delivery.store.messages import Plans, Step, begin, finish_bare, run_bare
from dispatcher.delivery.store.pacing import Taken, paces_of, taking, write
from dispatcher.delivery.store.pool import Connection
from dispatcher.delivery.store.routing import take_few
from dispatcher.delivery.store.session import Sessions
from dispatcher.shared.clock import seconds
from dispatcher.shared.rate import BEGIN_SECONDS
from sink.contract.failpoints import failpoint
from sink.contract.states import BreakerState

_Paced = dict[int, tuple[Taken, Allowance]]
"""Endpoints that are not sent to freely: their pace under its lock, and what it allows."""


class _MissingError(Exception):
    """An entry was not found within a range; the claim is rolled back."""

    def __init__(self, wider: Range) -> None:
        """`wider` is where to look for it."""
        self.wider = wider


class Claimer:
    """Claims for one process, and remembers where to look."""

    def __init__(self, sessions: Sessions) -> None:
        """`sessions` is shared with the rest of the store."""
        self._sessions = sessions
        self._marks = Marks()
        self._whole = Whole(WHOLE_SECONDS)
        self._free: set[int] = set()
        """Endpoints that were sent to freely when they were last looked at."""
        self._missed: set[int] = set()
        """Endpoints with lanes that were found and that only `_lease_paced` can judge."""
        self._days = Days()

    async def claim(self, wanted: Wanted, started: float) -> Claim:
        """Lease due lanes; those that turn out to have nothing for their endpoint become idle."""
        found, paced = await self._leased(wanted)
        return await self._came(found, paced, wanted, started)

    async def route_and_claim(self, wanted: Wanted, started: float) -> tuple[Routed, Claim] | None:
        """Route new batches and lease what is due then, in one transaction.

        None where these are not few, or some endpoint is not sent to freely; nothing is done then.
        """
        if not self._may_be_free(wanted):
            return None
        work = partial(self._route_and_lease, wanted=wanted)
        done = await self._sessions.transaction(work, begins=True)
        if done is None:
            return None
        routed, found = done
        self.know(routed)
        return routed, await self._came(found, {}, wanted, started)

    def know(self, routed: Routed) -> None:
        """Look from now on where lanes were routed to; otherwise `lane_priorities` tells, later."""
        for endpoint_id, priority in routed.priorities:
            self._marks.know(endpoint_id, priority)

    async def _came(
        self, found: Sequence[Found], paced: _Paced, wanted: Wanted, started: float
    ) -> Claim:
        empty = [each.head for each in found if each.head.sequence is None]
        gaps = [gap_of(each.head._asdict()) for each in found if each.head.gap]
        if empty:
            emptied = await self._sessions.rows(*emptying(empty))
            gaps += [gap_of(row) for row in emptied if row["gap"]]
        lanes = [
            _lane(each, wanted, paced.get(each.head.endpoint_id), started)
            for each in found
            if each.whole
        ]
        held = tuple(id_ for id_, (each, allowed) in paced.items() if _holds(each, allowed))
        warm = tuple(
            id_ for id_, (each, _) in paced.items() if each.pace.breaker is not _now(each).breaker
        )
        rated = {id_: allowed.lanes for id_, (_, allowed) in paced.items() if allowed.rate}
        return Claim(lanes, gaps, held, warm, rated, _again(paced))

    async def _leased(self, wanted: Wanted) -> tuple[list[Found], _Paced]:
        whole = self._whole.begin()
        range_: Range | None = None
        while True:
            try:
                leased = await self._sessions.transaction(
                    partial(
                        self._lease, wanted=wanted, range_=range_ or self._days.range, whole=whole
                    ),
                    begins=True,
                )
            except _MissingError as missing:
                range_ = missing.wider
            else:
                if leased is not None:
                    return leased

    async def _lease(
        self, connection: Connection, wanted: Wanted, range_: Range, *, whole: bool
    ) -> tuple[list[Found], _Paced] | None:
        whole = whole or self._has_missed(wanted)
        if not whole and self._may_be_free(wanted):
            found = await self._lease_freely(connection, wanted)
            return None if found is None else (found, {})
        asked = [id_ for id_ in wanted.lanes if whole or not self._marks.knows(id_)]
        return await self._lease_paced(connection, wanted, asked, range_, whole=whole)

    def _may_be_free(self, wanted: Wanted) -> bool:
        """Return whether every endpoint was sent to freely, and it is known where to look."""
        return wanted.lanes.keys() <= self._free and all(map(self._marks.knows, wanted.lanes))

    def _has_missed(self, wanted: Wanted) -> bool:
        return not self._missed.isdisjoint(wanted.lanes)

    async def _lease_freely(self, connection: Connection, wanted: Wanted) -> list[Found] | None:
        """Claim and COMMIT in one message, which as a rule is all there is to say.

        The statement leaves alone what has to be looked at first: that is for the next claim, or
        for another one at once where there was nothing else (None).
        """
        taken = taking(wanted.lanes.keys(), free_too=False)
        (paces,), rows = await finish_bare(
            connection, taken, last=self._claiming_freely(wanted), begins=True
        )
        self._free -= paces_of(paces).keys()
        leased = self._leased_freely(rows, wanted)
        return leased or (None if paces or self._has_missed(wanted) else [])

    async def _route_and_lease(
        self, connection: Connection, wanted: Wanted
    ) -> tuple[Routed, list[Found]] | None:
        try:
            # Paces before lanes, as everybody locks them.
            paces, few = await take_few(connection, taking(wanted.lanes.keys(), free_too=False))
            self._free -= paces_of(paces).keys()
            if few is None or not self._may_be_free(wanted):
                return None
            failpoint("D18")
            steps = (*few.before, few.route, *few.after)
            last = self._claiming_freely(wanted)
            answers, rows = await finish_bare(connection, *steps, last=last)
        except errors.LockNotAvailable:
            return None
        return Routed(**answers[len(few.before)][0]), self._leased_freely(rows, wanted)

    def _claiming_freely(self, wanted: Wanted) -> Step:
        allowed = {id_: Allowance(n, wanted.entries_per_lane) for id_, n in wanted.lanes.items()}
        looks = self._marks.looks(dict.fromkeys(allowed), whole=False)
        return leasing(wanted, allowed, looks, self._days.range, free=True)

    def _leased_freely(self, rows: list[Any], wanted: Wanted) -> list[Found]:
        found = found_in(rows)
        leased = [each for each in found if each.whole]
        missed = {each.head.endpoint_id for each in found if not each.whole}
        # Until a look at the whole has judged them: the next look may begin behind them.
        self._missed |= missed
        if begins := _begins(found):
            self._days.widen(begins)
        self._marks.end_turn(wanted.lanes.keys() - missed)
        self._note(leased, {}, whole=False)
        return leased

    async def _lease_paced(
        self,
        connection: Connection,
        wanted: Wanted,
        asked: Sequence[int],
        range_: Range,
        *,
        whole: bool,
    ) -> tuple[list[Found], _Paced]:
        steps = [taking(wanted.lanes.keys(), free_too=False)]
        if asked:
            steps.append(("claiming/lane_priorities", {"endpoint_ids": asked}))
        pace_rows, *priorities = await begin(connection, *steps, plans=Plans.KEPT)
        for row in chain.from_iterable(priorities):
            self._marks.know(row["endpoint_id"], row["priority"])
        paces = paces_of(pace_rows)
        self._free = (self._free | wanted.lanes.keys()) - paces.keys()
        paced = {
            id_: (
                each,
                allowance(
                    _now(each), each.limits, wanted.lanes[id_], wanted.entries_per_lane, each.at
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
        found: list[Found] = []
        if looks:
            step = leasing(wanted, allowed, looks, range_, free=False)
            found = found_in(await run_bare(connection, *step))
        if range_ != ANY_TIME and not all(each.whole for each in found):
            raise _MissingError(self._days.widen(_begins(found)))
        self._missed -= wanted.lanes.keys()
        self._marks.end_turn(allowed)
        self._note(found, _fresh(allowed), whole=whole)
        if whole:
            self._days.narrow(each.head.created_at for each in found)
        await _charge(connection, wanted, paced, found)
        if found:
            failpoint("D1")
        return found, paced

    def _note(
        self, found: Sequence[Found], fresh: Mapping[int, datetime | None], *, whole: bool
    ) -> None:
        """Take down up to where was claimed; `fresh` as of the looks."""
        self._marks.found(
            (
                (each.head.endpoint_id, each.head.priority, each.head.due_at)
                for each in found
                # Where a look began elsewhere, it does not say what lies before it.
                if fresh.get(each.head.endpoint_id) is None
            ),
            whole=whole,
        )
        if whole:
            self._whole.done()


def _begins(found: Sequence[Found]) -> list[datetime]:
    return [each.since for each in found if each.since is not None]


def _fresh(allowed: Mapping[int, Allowance]) -> dict[int, datetime | None]:
    return {id_: each.fresh_from for id_, each in allowed.items()}


async def _charge(
    connection: Connection,
    wanted: Wanted,
    paced: _Paced,
    found: Sequence[Found],
) -> None:
    counts: Counter[int] = Counter()
    for lane in found if paced else ():
        counts[lane.head.endpoint_id] += len(lane.entries) if lane.whole else 0
    for id_, (each, allowed) in paced.items():
        after = claimed(
            _now(each), allowed, counts[id_], each.at, wanted.token, wanted.lease_seconds
        )
        await write(connection, each.pace, after)


def _now(taken: Taken) -> Pace:
    return as_of(taken.pace, taken.at)


def _holds(taken: Taken, allowed: Allowance) -> bool:
    """Return whether what was claimed before may not be begun either; a probe may."""
    probing = taken.pace.breaker is BreakerState.HALF_OPEN
    return not allowed.lanes and allowed.rate is None and not probing


def _again(paced: _Paced) -> float | None:
    """Return when the first of the rates that allow nothing now will, if there is one."""
    return min(
        (
            next_seconds(_now(each), allowed.rate, each.at)
            for each, allowed in paced.values()
            if allowed.rate and not allowed.lanes
        ),
        default=None,
    )


def _lane(
    found: Found, wanted: Wanted, paced: tuple[Taken, Allowance] | None, started: float
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
