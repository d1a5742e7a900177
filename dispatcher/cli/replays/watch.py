"""Waiting for a replay that dispatchers work on, with a bar on a terminal."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dispatcher.cli.replays.shown import ENDED
from dispatcher.operators.common.session import Row
from dispatcher.operators.replays.store import Replays
from sink.contract.exits import ExitCode

LOOK_SECONDS = 0.25


def watch(store: Replays, id_: UUID, obstacles: Sequence[str] = ()) -> Row:
    """Return a replay's `status` as soon as it has ended.

    `obstacles` is what keeps it from being sent, and is said before the waiting begins. Ctrl-C ends
    the waiting (exit 0) and leaves the replay running, which it says.
    """
    try:
        for obstacle in obstacles:
            typer.echo(f"note: {obstacle}", err=True)
        row = store.status(id_)
        with _bar(row) as progress:
            while row["state"] not in ENDED or row["progress"].get("in_flight", 0):
                time.sleep(LOOK_SECONDS)
                row = store.status(id_)
                progress.update(progress.task_ids[0], completed=row["progress"].get("settled", 0))
    except KeyboardInterrupt:
        short = id_.hex[:8]
        typer.echo(
            f"the replay goes on: holdfast replay status {short}, or holdfast replay cancel {short}"
            " --reason TEXT",
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
