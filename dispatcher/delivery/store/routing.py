"""Turning batches into lanes."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from psycopg.rows import DictRow

from dispatcher.delivery.rules.values import Routed
from dispatcher.delivery.store.looks import BEGINNING, END
from dispatcher.delivery.store.messages import Plans, Step, begin, finish
from dispatcher.delivery.store.pool import Connection
from dispatcher.delivery.store.session import Sessions

PATIENCE_SECONDS = 630.0
"""For what the server allows ten minutes: routing a large batch, dropping a day."""

ENTRIES_MAX = 50_000
"""Entries of the batches that one transaction routes; a larger batch is routed alone."""

PLANNED_ENTRIES_MIN = 16
"""Entries for which routing is not worth a plan of its own."""

FEW_BATCHES_MAX = 16
FEW_LANES_MAX = 2_000
"""What is routed and claimed in one transaction, at most: other claims wait for it."""


async def route(sessions: Sessions, batches: int) -> Routed:
    """Route the oldest batches that no other dispatcher is routing; `batches` of them at most.

    They are left for the next time if somebody makes one of their lanes at this very moment.
    """
    lanes = 0
    priorities: list[Sequence[int]] = []
    # The first may leave new lanes to the second, and somebody make one of these at that moment.
    for held in (False, True, True):
        work = partial(_route, batches=batches, held=held)
        found, routed = await sessions.transaction(work, within=PATIENCE_SECONDS, begins=True)
        lanes += routed.lanes
        priorities += routed.priorities
        if routed.batches or not found:
            break
    return Routed(routed.batches, lanes, priorities)


async def _route(connection: Connection, batches: int, *, held: bool) -> tuple[bool, Routed]:
    """Return whether batches were found, and what was done.

    None is routed if one of their lanes was changed or made after the statement began, or where a
    few entries need a look at the past. What was done for their other lanes stands. With `held`
    lanes are locked first, which costs as much again, and the past is looked at.
    """
    _, rows = await begin(
        connection,
        ("routing/route_lock_shared", None),
        ("routing/batch_take", {"batches": batches}),
        plans=Plans.KEPT,
    )
    if not rows:
        return False, Routed(0, 0)
    taken = _bounded(rows)
    planned = _entries(taken) > PLANNED_ENTRIES_MIN
    given = _given(taken, past=held or planned)
    steps: list[Step] = [("routing/route_patience", None)]
    if planned:
        steps.append(("routing/plan_mode", {"plans": Plans.ANEW.value}))
    if held:
        steps.append(("routing/lane_route_hold", given))
    (routed,) = await finish(connection, *steps, ("routing/lane_route", given))
    return True, Routed(**routed)


class Few(NamedTuple):
    """Batches that are taken and not routed yet, by the steps that route them."""

    before: Sequence[Step]
    route: Step
    """Returns one row, a `Routed`."""
    after: Sequence[Step]


async def take_few(connection: Connection, then: Step) -> tuple[list[DictRow], Few | None]:
    """Open a transaction on kept plans, run `then`, and take all batches that are not routed.

    Returns the rows of `then`. There are no batches where they are many, or could make many lanes,
    or endpoints are being added. Raises `LockNotAvailable` where somebody else would have to be
    waited for.
    """
    (lock,), found, rows = await begin(
        connection,
        ("routing/route_lock_try", None),
        then,
        ("routing/batch_take", {"batches": FEW_BATCHES_MAX + 1}),
        plans=Plans.KEPT,
    )
    entries = _entries(rows)
    few = len(rows) <= FEW_BATCHES_MAX and entries * lock["endpoints"] <= FEW_LANES_MAX
    if not rows or not few or not lock["free"]:
        return found, None
    anew, kept = (("routing/plan_mode", {"plans": each.value}) for each in (Plans.ANEW, Plans.KEPT))
    planned = entries > PLANNED_ENTRIES_MIN
    route_them = ("routing/lane_route", _given(rows, past=planned))
    return found, Few([anew] if planned else [], route_them, [kept] if planned else [])


def _given(batches: Sequence[DictRow], *, past: bool) -> dict[str, object]:
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
