"""Replays as text: what a plan would do, and the progress of a replay, also with a bar."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.dispatcher.cli.output import counted, display, print_rows, visible
from holdfast.dispatcher.operators.common.person import lacks_approval
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.replays.rules import MEANS
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.views import (
    ENDED,
    drain_text,
    hold_reason,
    plan_warnings,
)
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.states import ReplayKind, ReplayState, ReplayVerb

_LIST = ("id", "verb", "state", "items", "about", "reason", "actor", "created_at", "finished_at")

_ENDPOINT = ("endpoint", "items", "released", "hastened", "sent", "delivered", "failed")

_ENDPOINTS = (*_ENDPOINT, "needless", "waiting", "retrying", "in_flight", "held_up")


def short(row: Row) -> str:
    """Return the short form of a replay's id."""
    return str(row["id"]).replace("-", "")[:8]


def show_plan(row: Row) -> None:
    """Print what a plan would do, where, how long it takes, and its warnings."""
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
    for line in plan_warnings(row, counts.get("overlaps", ())):
        typer.echo(f"note: {visible(line)}")
    typer.echo(_next(row))


def show_progress(row: Row) -> None:
    """Print the progress of a replay and what holds it up."""
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
            f"  {done['waiting']} wait ({done['retrying']} for a retry), {done['in_flight']} in"
            f" flight; remaining: {drain_text(row['drain_seconds'], row['rate_per_second'])}"
        )
    endpoints = [{**each, "held_up": hold_reason(each, display)} for each in row["endpoints"]]
    print_rows(endpoints, _ENDPOINTS, "At each endpoint")
    if done["failed"]:
        typer.echo(f"to see what failed and why: holdfast replay show {id_} --items --json")


def approval_command(row: Row) -> str | None:
    """Return the command by which a second person approves a plan; None if that is not needed."""
    return f"holdfast replay approve {short(row)} --reason TEXT" if lacks_approval(row) else None


def show_list(rows: Sequence[Row]) -> None:
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
    print_rows(seen, _LIST, "Replays", ("finished_at", "actor", "created_at"))


def about(stored: Row) -> str:
    """Return a stored filter as text.

    >>> about({"endpoint": "payouts", "states": ["dead"], "first_batch": 3, "last_batch": 3})
    'endpoint payouts, states dead, first batch 3, last batch 3'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {visible(_listed(value))}" for name, value in stored.items()
    )


def exit_code(row: Row) -> ExitCode:
    """Return the exit code of a command that waited for a replay."""
    return ExitCode.FAILED if row["state"] == ReplayState.CANCELLED else failures(row)


def failures(row: Row) -> ExitCode:
    """Return `DEGRADED` if some items failed."""
    return ExitCode.DEGRADED if row["progress"].get("failed", 0) else ExitCode.OK


def _findings(row: Row, counts: Row) -> Iterator[str]:
    for kind in _kinds(counts):
        yield f"{counts['kinds'][kind]:<9} {kind}: {MEANS[kind]}"
    if row["item_count"]:
        first, last = (datetime.fromisoformat(counts[each]) for each in ("oldest", "newest"))
        yield f"written   from {display(first)} to {display(last)}"
        yield "order     oldest first; within a subject by sequence"
        yield f"time      {drain_text(counts['drain_seconds'], row['rate_per_second'])}"
    if counts["no_op_there"]:
        yield (
            f"no-ops    {counts['no_op_there']} of them are already applied according to signed"
            " receipts; the receiver ignores them by their key"
        )


def _kinds(counts: Row) -> list[ReplayKind]:
    return [kind for kind in ReplayKind if kind in counts["kinds"]]


def _next(row: Row) -> str:
    id_ = short(row)
    match ReplayState(row["state"]):
        case ReplayState.PLANNED if not row["item_count"]:
            return (
                "nothing to do: all matching entries are already pending, or belong to"
                " another replay"
            )
        case ReplayState.PLANNED if (approve := approval_command(row)) is not None:
            return f"a second person has to approve it:\n  {approve}"
        case ReplayState.PLANNED:
            return f"nothing was sent yet. To apply it:\n  holdfast replay apply {id_}"
        case ReplayState.APPLYING:
            return f"it is running: holdfast replay status {id_}"
        case ReplayState.APPLIED | ReplayState.CANCELLED as state:
            return f"it is {state}: holdfast replay status {id_}"


def _when(row: Row) -> str:
    match ReplayState(row["state"]):
        case ReplayState.APPLYING:
            return f" since {display(row['applied_at'])}"
        case ReplayState.APPLIED:
            return f" at {display(row['finished_at'])}"
        case ReplayState.CANCELLED:
            return f" at {display(row['cancelled_at'])} by {visible(row['cancelled_by'])}"
        case ReplayState.PLANNED:
            return f" by {visible(row['actor'])}"


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


POLL_SECONDS = 0.25


def watch(store: Replays, id_: UUID, obstacles: Sequence[str] = ()) -> Row:
    """Return a replay's `status` once it has ended.

    `obstacles` are printed first: what keeps it from being sent. Ctrl-C stops waiting (exit code 0)
    and leaves the replay running.
    """
    try:
        for obstacle in obstacles:
            typer.echo(f"note: {obstacle}", err=True)
        row = store.status(id_)
        with _bar(row) as progress:
            while row["state"] not in ENDED or row["progress"].get("in_flight", 0):
                time.sleep(POLL_SECONDS)
                row = store.status(id_)
                progress.update(progress.task_ids[0], completed=row["progress"].get("settled", 0))
    except KeyboardInterrupt:
        short = id_.hex[:8]
        typer.echo(
            f"the replay continues: holdfast replay status {short}, or holdfast replay cancel"
            f" {short} --reason TEXT",
            err=True,
        )
        raise typer.Exit(ExitCode.OK) from None
    return row


@contextmanager
def _bar(row: Row) -> Iterator[Progress]:
    console = Console(stderr=True)
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        progress.add_task("", total=row["item_count"])
        yield progress
