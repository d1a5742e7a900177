"""Replays as text: what a plan would do, its warnings, its order. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.dispatcher.api.console.rendering.filters import clock
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.replays.rules import MEANS
from holdfast.dispatcher.operators.replays.views import ENDED, plan_warnings
from holdfast.sink.contract.states import ReplayKind, ReplayState, ReplayVerb

Row = Mapping[str, Any]


class Kind(NamedTuple):
    """Entries of a plan that are handled in the same way."""

    name: str
    entries: int
    means: str
    at: dict[str, int]
    """Their number by endpoint."""


def kinds(counts: Row) -> list[Kind]:
    """Return the kinds of a plan, in the order of `ReplayKind`."""
    at = counts.get("endpoints", {})
    return [
        Kind(
            kind.value,
            counts["kinds"][kind],
            MEANS[kind],
            {name: counts_of[kind] for name, counts_of in at.items() if kind in counts_of},
        )
        for kind in ReplayKind
        if kind in counts["kinds"]
    ]


def about(stored: Row) -> list[tuple[str, str]]:
    """Return a stored filter as names and texts.

    >>> about({"endpoint": "payouts", "states": ["dead"]})
    [('endpoint', 'payouts'), ('states', 'dead')]
    """
    return [
        (
            name.replace("_", " "),
            _listed(value) if isinstance(value, list) else str(value),
        )
        for name, value in stored.items()
    ]


def order(row: Row) -> str | None:
    """Return the order of the items, and the time range in which they were written."""
    counts = row["counts"]
    if not row["item_count"] or not counts.get("oldest"):
        return None
    first, last = (clock(datetime.fromisoformat(counts[each])) for each in ("oldest", "newest"))
    return (
        "oldest first, within a subject by sequence, at lower priority than live traffic."
        f" Written from {first} to {last}."
    )


def warnings(row: dict[str, Any], overlaps: Iterable[dict[str, Any]]) -> list[str]:
    """Return what a person must know before a plan is applied, as sentences."""
    return [f"{each[0].upper()}{each[1:]}." for each in plan_warnings(row, overlaps)]


def no_ops(counts: Row) -> int:
    """Return how many entries the receiver has already applied, according to signed receipts."""
    return int(counts.get("no_op_there", 0))


def can_apply(row: Row) -> bool:
    """Return whether the plan can be applied from the console now."""
    return (
        row["verb"] == ReplayVerb.REDELIVER
        and row["state"] == ReplayState.PLANNED
        and row["item_count"] > 0
        and (row["outside_window"] or not row["counts"].get("outside_window"))
        and not lacks_approval(row)
    )


def can_cancel(row: Row) -> bool:
    """Return whether the replay can still be cancelled."""
    return row["state"] not in ENDED


def _listed(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:3]))
    return shown if len(values) <= 3 else f"{shown} and {len(values) - 3} more"
