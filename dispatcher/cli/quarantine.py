"""`holdfast quarantine`: rows that were set aside, and what a person can do about them."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from dispatcher.cli.quarantine_files import whole_file
from dispatcher.cli.quarantine_requeue import put_entries, put_lines, texts_of
from dispatcher.cli.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.shown import plain, reason_of, shortened, visible
from dispatcher.store.operator_session import Row
from dispatcher.store.quarantine import Filter, Quarantine, quarantine
from sink.contract.canonical import rfc3339
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineReason, QuarantineResolution

app = typer.Typer(
    help="Rows that were set aside: list, export, put back, dismiss.", no_args_is_help=True
)

Ids = Annotated[
    list[int], typer.Argument(min=1, max=2**63 - 1, help="Numbers of rows, as `list` shows them.")
]
Stream = Annotated[str | None, typer.Option("--stream", help="Only rows of this stream.")]
Why = Annotated[
    QuarantineReason | None, typer.Option("--reason", help="Only rows set aside for this.")
]
Open = Annotated[
    bool, typer.Option("--open/--all", help="Only rows that nobody resolved, or all of them.")
]

_LIST = ("id", "stream", "batch_id", "reason", "detail", "quarantined_at", "resolution")
_FACTS = (
    *("stream", "query_id", "batch_id", "batch_no", "reason", "detail", "quarantined_at"),
    *("resolution", "resolved_at", "resolved_by"),
)


@app.command("list")
def list_(
    stream: Stream = None,
    reason: Why = None,
    open_: Open = True,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Rows at most.")] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, max=2**63 - 1, help="Only numbers below this one."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List rows that were set aside, the newest first, without their texts."""
    with quarantine(dsn) as store:
        rows = store.newest(Filter(stream, reason, open_), limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    if as_json:
        print_json({"rows": rows, "next_before": older})
        return
    print_rows([{**row, "detail": visible(row["detail"])} for row in rows], _LIST, "Quarantine")
    if older is not None:
        typer.echo(f"older ones: --before {older}")


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show one row with its text."""
    with quarantine(dsn) as store:
        [row] = store.take([number])
    if as_json:
        print_json(row)
        return
    typer.echo(f"row {row['id']}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<14} {plain(row[fact])}")
    typer.echo(f"\n{shortened(row['row'])}")


@app.command()
def export(
    stream: Stream = None,
    reason: Why = None,
    open_: Open = True,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="The file, replaced as a whole; standard output, if none."),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Write rows with their texts as JSON lines, the oldest first. Exit 3: there are none."""
    with quarantine(dsn) as store, store.export(Filter(stream, reason, open_)) as (count, rows):
        if not count:
            raise CommandError(
                "no row of the quarantine matches; nothing was written.", ExitCode.NOTHING_MATCHED
            )
        with _opened(output) as file:
            for row in _watched(rows, count, shown=output is not None):
                file.write(json.dumps(row, default=_json, ensure_ascii=False) + "\n")
    if output is not None:
        typer.echo(f"{count} rows written to {output}")


@app.command()
def requeue(
    ids: Ids,
    reason: Reason,
    row: Annotated[
        Path | None,
        typer.Option(
            "--row", exists=True, dir_okay=False, help="The corrected row (JSON), for one ID."
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="The job's directory, for rows that were refused there."),
    ] = None,
    suppress_repeats: Annotated[
        bool,
        typer.Option(
            "--suppress-repeats/--keep-repeats",
            help="Refuse an entry that is older than its subject's newest, or repeats its type.",
        ),
    ] = True,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Put rows back: entries into the outbox, source lines to the job that refused them.

    Running it twice puts a row back once. A row that is refused again stays open. Exit 4: some
    were refused; exit 1: all of them.
    """
    why = reason_of(reason)
    refused: list[Row] = []
    with quarantine(dsn) as store:
        open_rows, before = _open_among(store, ids)
        texts = texts_of(open_rows, row, lines=into is not None)
        if into is not None:
            marked, paths = put_lines(store, texts, into, why)
            done = [{"id": each, "detail": f"in {paths[each]}"} for each in marked]
        else:
            done, refused = put_entries(
                dsn or "", store, open_rows, texts, why, suppress_repeats=suppress_repeats
            )
    if as_json:
        print_json({"requeued": done, "refused": refused, "resolved_before": before})
    else:
        _tell("put back", done)
        _tell("refused again, and still open", refused)
        _tell("nothing done", [{"id": e["id"], "detail": _resolved(e)} for e in before])
    if refused:
        raise typer.Exit(ExitCode.DEGRADED if done else ExitCode.FAILED)


@app.command()
def dismiss(ids: Ids, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Close rows that need nothing more; they stay in the quarantine, and `--all` lists them."""
    why = reason_of(reason)
    with quarantine(dsn) as store:
        rows, before = _open_among(store, ids)
        done = store.resolve([row["id"] for row in rows], QuarantineResolution.DISMISSED, why)
    if as_json:
        print_json({"dismissed": done, "resolved_before": before})
    else:
        _tell("dismissed", [{"id": each, "detail": why} for each in done])
        _tell("nothing done", [{"id": e["id"], "detail": _resolved(e)} for e in before])


def _open_among(store: Quarantine, ids: list[int]) -> tuple[list[Row], list[Row]]:
    """Return the named rows that are open, and what became of the others."""
    rows = store.take(ids)
    resolved = [row for row in rows if row["resolution"] is not None]
    if len(resolved) == len(rows):
        raise CommandError(
            "; ".join(f"row {row['id']} is {_resolved(row)}" for row in resolved)
            + ". Nothing was changed.",
            ExitCode.NOTHING_MATCHED,
        )
    names = ("id", "resolution", "resolved_at", "resolved_by")
    return (
        [row for row in rows if row["resolution"] is None],
        [{name: row[name] for name in names} for row in resolved],
    )


def _resolved(row: Row) -> str:
    return f"{row['resolution']} already, on {plain(row['resolved_at'])} by {row['resolved_by']}"


def _tell(heading: str, rows: list[Row]) -> None:
    for row in rows:
        typer.echo(f"row {row['id']} {heading}: {visible(row['detail'])}")


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is not None:
        with whole_file(output) as file:
            yield file
        return
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, as `head` has: there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.OK) from None


def _watched(rows: Iterable[Row], count: int, *, shown: bool) -> Iterable[Row]:
    """Show a bar on a terminal that is not busy with the rows themselves."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        return rows
    return track(rows, "Exporting", count, console=console, transient=True)


def _json(value: Any) -> str:
    return rfc3339(value) if isinstance(value, datetime) else str(value)
