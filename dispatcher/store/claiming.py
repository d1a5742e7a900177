"""Claiming due lanes: how many each endpoint's pace allows, where to look for them, what came."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from dispatcher.core.lease import SETTLE_SECONDS
from dispatcher.core.pace import BEGIN_SECONDS, Allowance, Pace, allowance, claimed, warmed
from dispatcher.core.values import Claim, Entry, Gap, Lane, Wanted
from dispatcher.store.looks import WHOLE_SECONDS, Look, Marks, Whole
from dispatcher.store.pacing import Taken, take, write
from dispatcher.store.session import Connection, Sessions, run, run_named
from sink.contract.envelope import BODY_BYTES_MAX
from sink.contract.failpoints import failpoint
from sink.contract.states import BreakerState

AHEAD, AHEAD_FAR = "1 hour", "100 years"
"""How far in the database's future a claim looks for entries, and where it found one missing."""


Row = Any
"""A named tuple of what `lane_claim` returns."""


class _MissingError(Exception):
    """An entry was not found within `AHEAD`; the claim is rolled back."""


class Claimer:
    """Claims for one process, and remembers where to look."""

    def __init__(self, sessions: Sessions) -> None:
        """`sessions` is shared with the rest of the store."""
        self._sessions = sessions
        self._marks = Marks()
        self._whole = Whole(WHOLE_SECONDS)

    async def claim(self, wanted: Wanted, started: float) -> Claim:
        """Lease due lanes; those that turn out to have nothing for their endpoint become idle."""
        try:
            turn = await self._sessions.transaction(lambda c: self._lease(c, wanted, AHEAD))
        except _MissingError:
            turn = await self._sessions.transaction(lambda c: self._lease(c, wanted, AHEAD_FAR))
        rows, taken = turn
        empty = [row for row in rows if row.sequence is None]
        gaps = [_gap(row._asdict()) for row in rows if row.gap]
        if empty:
            emptied = await self._sessions.rows("lane_empty", _empty(empty))
            gaps += [_gap(row) for row in emptied if row["gap"]]
        filled = [row for row in rows if row.sequence is not None and not row.gap]
        lanes = [
            _lane(list(group), wanted, taken.get(endpoint_id), started)
            for (endpoint_id, _), group in groupby(filled, key=_lane_key)
        ]
        held = tuple(id_ for id_, (each, allowed) in taken.items() if _holds(each, allowed))
        warm = tuple(id_ for id_, (each, _) in taken.items() if each.pace != _warm(each))
        return Claim(lanes, gaps, held, warm)

    async def _lease(
        self, connection: Connection, wanted: Wanted, ahead: str
    ) -> tuple[list[Row], dict[int, tuple[Taken, Allowance]]]:
        whole = self._whole.begin()
        asked = [id_ for id_ in wanted.lanes if whole or not self._marks.knows(id_)]
        if asked:
            for row in await run(connection, "lane_priorities", {"endpoint_ids": asked}):
                self._marks.know(row["endpoint_id"], row["priority"])
        paces = await take(connection, wanted.lanes.keys(), free_too=False)
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
        rows = await self._claim(connection, wanted, allowed, ahead, whole=whole)
        await _charge(connection, wanted, paced, rows)
        if rows:
            failpoint("D1")
        return rows, paced

    async def _claim(
        self,
        connection: Connection,
        wanted: Wanted,
        allowed: dict[int, Allowance],
        ahead: str,
        *,
        whole: bool,
    ) -> list[Row]:
        fresh = {id_: each.fresh_from for id_, each in allowed.items()}
        looks = self._marks.looks(fresh, whole=whole)
        rows = []
        if looks:
            parameters = _leasing(wanted, allowed, ahead) | _looking(looks)
            rows = await run_named(connection, "lane_claim", parameters)
        if ahead != AHEAD_FAR and any(row.sequence is None or row.gap for row in rows):
            raise _MissingError
        self._marks.found(
            (
                (row.endpoint_id, row.priority, row.due_at)
                for row in rows
                # Where a look began elsewhere, it does not say what lies before it.
                if fresh[row.endpoint_id] is None
            ),
            whole=whole,
        )
        if whole:
            self._whole.done()
        return rows


async def _charge(
    connection: Connection,
    wanted: Wanted,
    paced: dict[int, tuple[Taken, Allowance]],
    rows: Sequence[Row],
) -> None:
    counts = Counter(row.endpoint_id for row in rows if row.sequence is not None and not row.gap)
    for id_, (taken, allowed) in paced.items():
        after = claimed(
            _warm(taken), allowed, counts[id_], taken.at, wanted.token, wanted.lease_seconds
        )
        await write(connection, taken.pace, after)


def _leasing(wanted: Wanted, allowed: dict[int, Allowance], ahead: str) -> dict[str, object]:
    return {
        "endpoint_ids": list(allowed),
        "lanes": [each.lanes for each in allowed.values()],
        "entries": [each.entries for each in allowed.values()],
        "token": wanted.token,
        "lease_seconds": wanted.lease_seconds,
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


def _empty(rows: Sequence[Row]) -> dict[str, object]:
    return {
        "endpoint_ids": [row.endpoint_id for row in rows],
        "subject_ids": [row.subject_id for row in rows],
        "last_sequences": [row.last_sequence for row in rows],
    }


_lane_key = attrgetter("endpoint_id", "subject_id")


def _gap(row: Mapping[str, Any]) -> Gap:
    return Gap(
        endpoint_id=row["endpoint_id"],
        subject_id=row["subject_id"],
        delivered_sequence=row["delivered_sequence"],
        found=row.get("sequence"),
    )


def _lane(
    rows: Sequence[Row],
    wanted: Wanted,
    paced: tuple[Taken, Allowance] | None,
    started: float,
) -> Lane:
    until = trusted = started + wanted.lease_seconds
    if paced is not None and paced[1].rate is not None:
        timeout = paced[0].limits.total_timeout
        trusted = min(until, started + BEGIN_SECONDS + timeout + SETTLE_SECONDS)
    head = rows[0]
    return Lane(
        endpoint_id=head.endpoint_id,
        subject_id=head.subject_id,
        token=wanted.token,
        delivered_sequence=head.delivered_sequence,
        entries=tuple([_entry(row) for row in rows]),
        trusted_until=trusted,
        settle_until=until,
        claimed_at=started,
        tried_seconds=head.tried_us / 1_000_000,
    )


def _entry(row: Row) -> Entry:
    # By position: names take as long again, and there are thousands a second.
    return Entry(
        row.sequence,
        row.number,
        row.key,
        row.created_at,
        row.traceparent,
        bytes(row.body),
        row.rescued,
    )
