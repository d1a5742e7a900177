"""Replays in words: what a plan would do, and how far one has come."""

from collections.abc import Iterator
from datetime import datetime
from math import ceil
from typing import Any

import typer

from dispatcher.cli.common.shared import print_rows
from dispatcher.cli.common.shown import counted, plain, visible
from dispatcher.operators.common.person import lacks_approval
from dispatcher.operators.common.session import Row
from dispatcher.operators.replays.rules import MEANS
from sink.contract.exits import ExitCode
from sink.contract.states import ReplayKind, ReplayState, ReplayVerb

ENDED = (ReplayState.APPLIED, ReplayState.CANCELLED)

_LIST = ("id", "verb", "state", "items", "about", "reason", "actor", "created_at", "finished_at")
_ENDPOINT = ("endpoint", "items", "released", "hastened", "sent", "delivered", "failed")
_ENDPOINTS = (*_ENDPOINT, "needless", "waiting", "retrying", "in_flight", "held_up")


def short(row: Row) -> str:
    """Return the number of a replay as people write it."""
    return str(row["id"]).replace("-", "")[:8]


def show_plan(row: Row) -> None:
    """Say what a plan would do, where, how long it takes, and what speaks against it."""
    counts, id_ = row["counts"], short(row)
    typer.echo(f"replay {id_}: {row['state']} by {visible(row['actor'])}: {visible(row['reason'])}")
    typer.echo(f"  about     {about(row['filter'])}")
    if row["verb"] == ReplayVerb.REDELIVER:
        for line in _findings(row, counts):
            typer.echo(f"  {line}")
        endpoints = [
            {"endpoint": name, **{kind: found.get(kind, 0) for kind in _kinds(counts)}}
            for name, found in counts["endpoints"].items()
        ]
        print_rows(endpoints, ("endpoint", *_kinds(counts)), "At each endpoint")
    for line in _warnings(row, counts):
        typer.echo(f"note: {line}")
    typer.echo(_next(row))


def show_progress(row: Row) -> None:
    """Say how far a replay has come, and what keeps it."""
    done, id_ = row["progress"], short(row)
    typer.echo(f"replay {id_}: {row['state']}{_when(row)}: {visible(row['reason'])}")
    if not done:
        return
    typer.echo(
        f"  {done['settled']} of {counted(done['items'], 'item')} done:"
        f" {done['delivered']} delivered, {done['released']} released into their lanes,"
        f" {done['hastened']} made due, {done['failed']} failed, {done['needless']} needless"
    )
    if row["state"] not in ENDED:
        typer.echo(
            f"  {done['waiting']} wait ({done['retrying']} for a retry),"
            f" {done['in_flight']} in flight; {_lasting(row, 'is left')}"
        )
    endpoints = [{**each, "held_up": _held_up(each)} for each in row["endpoints"]]
    print_rows(endpoints, _ENDPOINTS, "At each endpoint")
    if done["failed"]:
        typer.echo(f"what failed, and why: holdfast replay show {id_} --items --json")


def approving(row: Row) -> str | None:
    """Return what a second person has to say before a plan is applied; None where nobody has to."""
    return f"holdfast replay approve {short(row)} --reason TEXT" if lacks_approval(row) else None


def show_list(rows: Iterator[Row] | list[Row]) -> None:
    """Print replays, one a row."""
    seen = [
        {
            **row,
            "id": short(row),
            "items": row["item_count"],
            "about": about(row["filter"]),
            "reason": visible(row["reason"]),
        }
        for row in rows
    ]
    print_rows(seen, _LIST, "Replays")


def about(stored: Row) -> str:
    """Return a filter in words, as it was stored.

    >>> about({"endpoint": "payouts", "states": ["dead"], "first_batch": 3, "last_batch": 3})
    'endpoint payouts, states dead, first batch 3, last batch 3'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {visible(_listed(value))}" for name, value in stored.items()
    )


def exit_code(row: Row) -> ExitCode:
    """Return how a command ends that waited for a replay."""
    return ExitCode.FAILED if row["state"] == ReplayState.CANCELLED else failures(row)


def failures(row: Row) -> ExitCode:
    """Return `DEGRADED` where some items failed."""
    return ExitCode.DEGRADED if row["progress"].get("failed", 0) else ExitCode.OK


def _findings(row: Row, counts: Row) -> Iterator[str]:
    for kind in _kinds(counts):
        yield f"{counts['kinds'][kind]:<9} {kind}: {MEANS[kind]}"
    if row["item_count"]:
        first, last = (datetime.fromisoformat(counts[each]) for each in ("oldest", "newest"))
        yield f"written   from {plain(first)} to {plain(last)}"
        yield "order     as they were written, the oldest first; a subject's by their sequence"
        yield f"time      {_lasting({**row, **counts}, 'it takes')}"
    if counts["no_op_there"]:
        yield (
            f"no-ops    {counts['no_op_there']} of them are applied there already, as signed"
            " receipts say: the receiver absorbs them by their key"
        )


def _kinds(counts: Row) -> list[ReplayKind]:
    return [kind for kind in ReplayKind if kind in counts["kinds"]]


def _warnings(row: Row, counts: Row) -> Iterator[str]:
    yield from row["obstacles"]
    for other in counts.get("overlaps", ()):
        yield (
            f"{counted(other['entries'], 'entry')} of this are in replay {other['id'][:8]} too"
            f" ({other['state']}, by {visible(other['actor'])}); none is sent by both at a time"
        )
    if counts.get("taken"):
        yield f"{counted(counts['taken'], 'entry')} left to a replay that is under way"
    if counts.get("beyond_limit"):
        yield f"{counted(counts['beyond_limit'], 'entry')} beyond --limit were left out"
    if counts.get("outside_window"):
        yield (
            f"{counted(counts['outside_window'], 'entry')} first tried longer ago than the receiver"
            " keeps keys: it may have forgotten them, and act again"
            + (
                "; --outside-window was said, so they are sent"
                if row["outside_window"]
                else ". `apply` refuses this plan: plan again with --outside-window, or a later"
                " --since"
            )
        )


def _next(row: Row) -> str:
    id_ = short(row)
    match ReplayState(row["state"]):
        case ReplayState.PLANNED if not row["item_count"]:
            return "nothing to do: what matches is sent in any case, or by another replay"
        case ReplayState.PLANNED if (approve := approving(row)) is not None:
            return f"a second person has to say\n  {approve}"
        case ReplayState.PLANNED:
            return f"nothing was sent yet. To do it:\n  holdfast replay apply {id_}"
        case ReplayState.APPLYING:
            return f"it is under way: holdfast replay status {id_}"
        case ReplayState.APPLIED | ReplayState.CANCELLED as state:
            return f"it is {state}: holdfast replay status {id_}"


def _lasting(row: Row, what: str) -> str:
    seconds = row["drain_seconds"]
    if seconds is None:
        return "as long as the receiver takes: neither the replay nor its endpoints have a rate"
    rate = row["rate_per_second"]
    at = f"at {rate} a second" if rate else "at the rates of its endpoints"
    return f"{what} {_duration(seconds)} or more, {at}"


def _duration(seconds: float) -> str:
    whole = max(1, ceil(seconds))
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if whole >= 2 * size:
            return f"{ceil(whole / size)} {name}"
    return f"{whole} s"


def _held_up(row: Row) -> str | None:
    if row["endpoint_state"] != "active":
        return f"the endpoint is {row['endpoint_state']}"
    if row["breaker"] == "open":
        return "its breaker is open"
    return None if row["held_until"] is None else f"held until {plain(row['held_until'])}"


def _when(row: Row) -> str:
    match ReplayState(row["state"]):
        case ReplayState.APPLYING:
            return f" since {plain(row['applied_at'])}"
        case ReplayState.APPLIED:
            return f" at {plain(row['finished_at'])}"
        case ReplayState.CANCELLED:
            return f" at {plain(row['cancelled_at'])} by {visible(row['cancelled_by'])}"
        case ReplayState.PLANNED:
            return f" by {visible(row['actor'])}"


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
