"""What `export` commands share: where the lines go, the bar, and values as JSON."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import typer
from rich.console import Console
from rich.progress import track

from dispatcher.cli.quarantine.files import whole_file
from dispatcher.operators.common.session import Row
from sink.contract.canonical import rfc3339
from sink.contract.exits import ExitCode


@contextmanager
def opened(output: Path | None) -> Iterator[IO[str]]:
    """Yield the file, which is there as a whole or not at all; without one, standard output."""
    try:
        if output is not None:
            with whole_file(output) as file:
                yield file
        else:
            yield sys.stdout
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, as `head` has: there is nobody left to tell.
        if output is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        elif not output.is_fifo():
            raise
        raise typer.Exit(ExitCode.OK) from None


def watched(rows: Iterable[Row], count: int, *, shown: bool) -> Iterable[Row]:
    """Show a bar on a terminal that is not busy with the rows themselves."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        return rows
    return track(rows, "Exporting", count, console=console, transient=True)


def json_value(value: Any) -> str:
    """Return what JSON has no type for: times in RFC 3339."""
    return rfc3339(value) if isinstance(value, datetime) else str(value)
