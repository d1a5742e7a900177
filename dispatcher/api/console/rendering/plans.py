"""Replays in words: what a plan would do, what speaks against it, what keeps one. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from dispatcher.api.console.rendering.filters import clock, counted
from dispatcher.operators.common.person import lacks_approval
from dispatcher.operators.common.text import span
from dispatcher.operators.replays.rules import MEANS
from sink.contract.states import ReplayKind, ReplayState, ReplayVerb

Row = Mapping[str, Any]

ENDED = (ReplayState.APPLIED, ReplayState.CANCELLED)


class Kind(NamedTuple):
    """Entries to which the same is done."""

    name: str
    entries: int
    means: str
    at: dict[str, int]
    """How many of them at each endpoint."""


def kinds(counts: Row) -> list[Kind]:
    """Return what a plan does, in the order of `ReplayKind`."""
    at = counts.get("endpoints", {})
    return [
        Kind(
            kind.value,
            counts["kinds"][kind],
            MEANS[kind],
            {name: found[kind] for name, found in at.items() if kind in found},
        )
        for kind in ReplayKind
        if kind in counts["kinds"]
    ]


def about(stored: Row) -> list[tuple[str, str]]:
    """Return a filter as it was stored: names and texts.

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
    """Return in which order the items go, and from when to when they were written."""
    counts = row["counts"]
    if not row["item_count"] or not counts.get("oldest"):
        return None
    first, last = (clock(datetime.fromisoformat(counts[each])) for each in ("oldest", "newest"))
    return (
        "as they were written, the oldest first, a subject's by their sequence; behind live"
        f" traffic. Written from {first} to {last}."
    )


def lasting(seconds: float | None, rate: int | None, what: str) -> str:
    """Return how long it takes, at least; `what` is the beginning of the sentence."""
    if seconds is None:
        return "as long as the receiver takes: neither the replay nor its endpoints have a rate"
    at = f"at {rate:,} a second" if rate else "at the rates of its endpoints"
    return f"{what} {span(max(1.0, seconds))} or more, {at}"


def warnings(row: Row, overlaps: Iterable[Row]) -> Iterator[str]:
    """Yield what a person must know before a plan is applied; `overlaps` as the store has them."""
    counts = row["counts"]
    yield from (f"{each[0].upper()}{each[1:]}." for each in row["obstacles"])
    for other in overlaps:
        shared = counted(other["entries"], "entry is", "entries are")
        yield (
            f"{shared} in replay {str(other['id'])[:8]} too ({other['state']},"
            f" by {other['actor']}); none is sent by both at a time."
        )
    if counts.get("taken"):
        left = counted(counts["taken"], "entry is", "entries are")
        yield f"{left} left to a replay that is under way."
    if counts.get("beyond_limit"):
        left = counted(counts["beyond_limit"], "entry was", "entries were")
        yield f"{left} left out: the plan is of the first ones only."
    if counts.get("outside_window"):
        first = counted(counts["outside_window"], "entry was", "entries were")
        yield (
            f"{first} first tried longer ago than the receiver keeps keys: it may have forgotten"
            " them, and act again."
            + (
                " They are sent, because that was agreed to."
                if row["outside_window"]
                else " This plan is refused: plan again with a later time, or agree to it."
            )
        )


def no_ops(counts: Row) -> int:
    """Return how many entries the receiver has applied already, by its signed receipts."""
    return int(counts.get("no_op_there", 0))


def held_up(each: Row) -> str | None:
    """Return what keeps an endpoint from being sent to, from a row of `Replays.status`."""
    if each["endpoint_state"] != "active":
        return f"the endpoint is {each['endpoint_state']}"
    if each["breaker"] == "open":
        return "its breaker is open"
    return None if each["held_until"] is None else f"held until {clock(each['held_until'])}"


def can_apply(row: Row) -> bool:
    """Return whether a plan can be applied from the console as it stands."""
    return (
        row["verb"] == ReplayVerb.REDELIVER
        and row["state"] == ReplayState.PLANNED
        and row["item_count"] > 0
        and (row["outside_window"] or not row["counts"].get("outside_window"))
        and not lacks_approval(row)
    )


def can_cancel(row: Row) -> bool:
    """Return whether a replay can still be cancelled."""
    return row["state"] not in ENDED


def _listed(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:3]))
    return shown if len(values) <= 3 else f"{shown} and {len(values) - 3} more"
