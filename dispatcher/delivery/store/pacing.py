"""Rows of `endpoint_pace`: locks and reads them, has `rules.pace` decide, stores them."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from psycopg.rows import DictRow

from holdfast.dispatcher.delivery.rules.pace import Limits, Pace, settled
from holdfast.dispatcher.delivery.rules.values import PaceChange, Settlement
from holdfast.dispatcher.delivery.store.messages import Step, run
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.outbound.endpoint import attempt_seconds
from holdfast.sink.contract.states import BreakerState, Outcome


@dataclass(frozen=True, slots=True)
class LockedPace:
    """An endpoint's pace under the lock of this transaction, and the database's time."""

    pace: Pace
    limits: Limits
    at: datetime


def pace_step(endpoint_ids: Collection[int], *, free_too: bool) -> Step:
    """Lock and return the paces of endpoints; with `free_too` also those without a limit."""
    return "claiming/pace_take", {"endpoint_ids": sorted(endpoint_ids), "free_too": free_too}


def paces_of(rows: Iterable[DictRow]) -> dict[int, LockedPace]:
    """Return the rows of `pace_step` by endpoint."""
    return {row["endpoint_id"]: _locked_pace(row) for row in rows}


async def write(connection: Connection, before: Pace, after: Pace) -> None:
    """Store `after` unless it is `before`."""
    if after != before:
        row = asdict(after)
        await run(connection, "claiming/pace_write", row | {"breaker": after.breaker.value})


async def settle_paces(
    connection: Connection, settlements: Iterable[Settlement], endpoint_ids: Collection[int]
) -> Mapping[int, PaceChange]:
    """Apply `settlements` to the paces of `endpoint_ids`; returns what changed."""
    if not endpoint_ids:
        return {}
    of_endpoint: defaultdict[int, list[Settlement]] = defaultdict(list)
    for settlement in settlements:
        of_endpoint[settlement.endpoint_id].append(settlement)
    changes = {}
    rows = await run(connection, *pace_step(endpoint_ids, free_too=True))
    for id_, each in paces_of(rows).items():
        draw = random.random()  # noqa: S311 - jitter, not a secret
        after = settled(each.pace, of_endpoint[id_], each.limits, each.at, draw=draw)
        await write(connection, each.pace, after)
        if (change := _change(each.pace, after)) is not None:
            changes[id_] = change
    return changes


def concerned(settlements: Sequence[Settlement], paced: Collection[int]) -> set[int]:
    """Return the endpoints whose pace these results may change.

    `paced` are those with a limit; the pace of the others changes only by failures.
    """
    return {
        each.endpoint_id
        for each in settlements
        if each.endpoint_id in paced
        or any(tried.outcome is not Outcome.DELIVERED for tried in each.attempts[-1:])
    }


def _change(before: Pace, after: Pace) -> PaceChange | None:
    held_until = after.held_until if after.held_until != before.held_until else None
    if held_until is None and after.breaker is before.breaker:
        return None
    return PaceChange(
        before.breaker, after.breaker, after.breaker_until, after.breaker_reason, held_until
    )


def _locked_pace(row: DictRow) -> LockedPace:
    limits = Limits(
        rate_per_second=row["rate_per_second"],
        breaker_threshold=row["breaker_threshold"],
        slow_start_seconds=row["slow_start_seconds"],
        attempt_seconds=attempt_seconds(
            row["total_timeout_ms"] / 1000, inquires=row["inquiry_path"] is not None
        ),
    )
    pace = Pace(
        endpoint_id=row["endpoint_id"],
        breaker=BreakerState(row["breaker"]),
        breaker_since=row["breaker_since"],
        breaker_until=row["breaker_until"],
        breaker_reason=row["breaker_reason"],
        failures=row["failures"],
        openings=row["openings"],
        probe=row["probe"],
        paid_until=row["paid_until"],
        held_until=row["held_until"],
        held_by=row["held_by"],
        paused=row["paused"],
        stalled_us=row["stalled_us"],
        stalled_since=row["stalled_since"],
        stalled_until=row["stalled_until"],
    )
    return LockedPace(pace, limits, row["at"])
