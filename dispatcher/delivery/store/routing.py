"""Turning batches into lanes."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from psycopg.rows import DictRow

from holdfast.dispatcher.delivery.rules.values import Routed
from holdfast.dispatcher.delivery.store.messages import Plans, Step, begin, finish
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.scan_plan import BEGINNING, END
from holdfast.dispatcher.delivery.store.session import Sessions

PATIENCE_SECONDS = 630.0
"""Client-side limit where the server allows ten minutes: routing a large batch, dropping a day."""

ENTRIES_MAX = 50_000
"""Entries of the batches that one transaction routes; a larger batch is routed alone."""

PLANNED_ENTRIES_MIN = 16
"""Up to this many entries, routing uses a generic plan: planning would take longer."""

FEW_BATCHES_MAX = 16
FEW_LANES_MAX = 2_000
"""Maximum that is routed and claimed in one transaction: other claims wait for it."""


async def route(sessions: Sessions, batches: int) -> Routed:
    """Route the oldest batches that no other dispatcher is routing, at most `batches`.

    They are left for the next call if another transaction creates one of their lanes meanwhile.
    """
    lanes = 0
    priorities: list[Sequence[int]] = []
    # The first may leave new lanes to the second, and another transaction may then create one.
    for lock_lanes in (False, True, True):
        work = partial(_route, batches=batches, lock_lanes=lock_lanes)
        found_batches, routed = await sessions.transaction(
            work, within=PATIENCE_SECONDS, begins=True
        )
        lanes += routed.lanes
        priorities += routed.priorities
        if routed.batches or not found_batches:
            break
    return Routed(routed.batches, lanes, priorities)


async def _route(connection: Connection, batches: int, *, lock_lanes: bool) -> tuple[bool, Routed]:
    """Return whether batches were found, and what was routed.

    No batch is routed if one of their lanes was changed or created after the statement began, or
    if one of few entries may have earlier ones on other days. Changes of their other lanes stand.
    `lock_lanes` locks the lanes first, which doubles the cost, and searches the other days.
    """
    _, rows = await begin(
        connection,
        ("routing/route_lock_shared", None),
        ("routing/batch_take", {"batches": batches}),
        plans=Plans.GENERIC,
    )
    if not rows:
        return False, Routed(0, 0)
    batches_taken = _bounded(rows)
    planned = _entries(batches_taken) > PLANNED_ENTRIES_MIN
    parameters = _parameters(batches_taken, past=lock_lanes or planned)
    steps: list[Step] = [("routing/route_patience", None)]
    if planned:
        steps.append(("routing/plan_mode", {"plans": Plans.CUSTOM.value}))
    if lock_lanes:
        steps.append(("routing/lane_route_hold", parameters))
    (routed,) = await finish(connection, *steps, ("routing/lane_route", parameters))
    return True, Routed(**routed)


class RoutingSteps(NamedTuple):
    """The steps that route locked batches."""

    before: Sequence[Step]
    route: Step
    """Returns one row, a `Routed`."""
    after: Sequence[Step]


async def lock_few_batches(
    connection: Connection, step: Step
) -> tuple[list[DictRow], RoutingSteps | None]:
    """Open a transaction on generic plans, run `step`, and lock all unrouted batches.

    Returns the rows of `step`; no steps if there are many batches, if they could create many lanes,
    or while endpoints are added. Raises `LockNotAvailable` instead of waiting for a lock.
    """
    (lock,), rows_of_step, rows = await begin(
        connection,
        ("routing/route_lock_try", None),
        step,
        ("routing/batch_take", {"batches": FEW_BATCHES_MAX + 1}),
        plans=Plans.GENERIC,
    )
    entries = _entries(rows)
    is_small = len(rows) <= FEW_BATCHES_MAX and entries * lock["endpoints"] <= FEW_LANES_MAX
    if not rows or not is_small or not lock["free"]:
        return rows_of_step, None
    custom, generic = (
        ("routing/plan_mode", {"plans": each.value}) for each in (Plans.CUSTOM, Plans.GENERIC)
    )
    planned = entries > PLANNED_ENTRIES_MIN
    route_them = ("routing/lane_route", _parameters(rows, past=planned))
    return rows_of_step, RoutingSteps(
        [custom] if planned else [], route_them, [generic] if planned else []
    )


def _parameters(batches: Sequence[DictRow], *, past: bool) -> dict[str, object]:
    moments = [row["written_at"] for row in batches]
    return {
        "batch_nos": [row["batch_no"] for row in batches],
        "first_written_at": min(moments),
        "last_written_at": max(moments),
        "past": BEGINNING if past else END,
    }


def _entries(batches: Sequence[DictRow]) -> int:
    return sum(row["entry_count"] for row in batches)


def _bounded(batches: Sequence[DictRow]) -> list[DictRow]:
    """Return the first batches that together have few enough entries, but at least one."""
    entries = accumulate(row["entry_count"] for row in batches)
    return [
        row
        for place, (row, total) in enumerate(zip(batches, entries, strict=True))
        if place == 0 or total <= ENTRIES_MAX
    ]
