"""Waiting for a replay: its progress as a bar, and the exit code at the end."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.operators.replays.views import ENDED
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.states import ReplayState

POLL_SECONDS = 0.25


def exit_code(row: Row) -> ExitCode:
    """Return the exit code of a command that waited for a replay."""
    return ExitCode.FAILED if row["state"] == ReplayState.CANCELLED else failures(row)


def failures(row: Row) -> ExitCode:
    """Return `DEGRADED` if some items failed."""
    return ExitCode.DEGRADED if row["progress"].get("failed", 0) else ExitCode.OK


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
