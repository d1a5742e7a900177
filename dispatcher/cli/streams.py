"""`holdfast stream`: the sinks' streams and the checkpoints they have adopted."""

import json
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from holdfast.dispatcher.cli.options import AsJson, Dsn, Reason, Wide, query_id_of, reason_of
from holdfast.dispatcher.cli.output import (
    Page,
    console,
    counted,
    display,
    print_facts,
    print_json,
    print_page,
    print_rows,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.streams.store import Streams
from holdfast.sink.contract.checkpoint import local_folder
from holdfast.sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="Streams: list, show, adopt a new checkpoint.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The stream.")]

_FACTS = ("query_id", "epoch", "run_id", "checkpoint", "created_at", "adopted_at", "started_at")

_CHECKPOINTS = ("query_id", "batches", "first_batch_id", "last_batch_id", "last_written_at")

_BATCHES = ("batch_id", "written_at", "row_count", "entry_count", "routed_at", "divergences")

_UNDELIVERED = (
    *("endpoint", "state", "undelivered", "complete", "dead_letters", "oldest_written_at"),
)

_QUARANTINED = ("reason", "open", "oldest_quarantined_at")

_DIVERGENCES = (
    *("id", "query_id", "batch_id", "differing_count", "rows_then", "rows_now", "found_at"),
)


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """List the streams, each with its adopted query id and newest batch. Exit code 3: none."""
    with Streams.connect(dsn) as store:
        rows = store.streams()
    nothing = "there is no stream yet: the first write of a sink creates one. Nothing was changed."
    print_page(Page("streams", rows), _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    columns = ("name", "epoch", "last_batch_id", "last_written_at", "query_id")
    print_rows(rows, columns, "Streams")


@app.command()
def show(name: Name, dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """Show a stream: its checkpoint and run, its newest batches, and what needs attention."""
    with Streams.connect(dsn) as store:
        found = store.stream(name)
    if as_json:
        print_json(found)
    else:
        _show(found)


@app.command()
def adopt(
    name: Name,
    query_id: Annotated[
        str, typer.Option("--query-id", help="The id in the new checkpoint's `metadata` file.")
    ],
    reason: Reason,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            help="Path of the new checkpoint. Default: that of the stream's previous one.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Accept the id although it cannot be verified.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Accept batches of another checkpoint. Existing decisions keep their keys; none is repeated.

    A wrong id would fence the right run. It is therefore compared with the checkpoint, if that can
    be read on this machine, and with the batches that the stream has of other checkpoints.
    """
    wanted = query_id_of(query_id)
    if wanted is None:
        raise CommandError(
            "--query-id is missing. Nothing was changed.", ExitCode.USAGE, code="missing_parameter"
        )
    why = reason_of(reason)
    with Streams.connect(dsn) as store:
        row = store.adopt(
            name,
            wanted,
            why,
            found_in=lambda kept: query_id_in(checkpoint or kept),
            force=force,
        )
    if as_json:
        print_json(row)
    elif not row["changed"]:
        typer.echo(
            f"stream {name} has accepted query id {row['query_id']} since"
            f" {display(row['adopted_at'])}; nothing was changed"
        )
    else:
        typer.echo(
            f"stream {name} now accepts query id {row['query_id']}"
            f" (before: {row['previous_query_id'] or 'none'})"
        )


def _show(found: Row) -> None:
    typer.echo(f"stream {found['name']}")
    print_facts({name: found[name] for name in _FACTS}, 11)
    typer.echo(
        f"{counted(found['batches'], 'batch')} with {counted(found['rows'], 'row')} ="
        f" {counted(found['entries'], 'entry')} + {counted(found['duplicates'], 'duplicate')}"
        f" + {found['suppressed']} suppressed + {found['quarantined']} quarantined;"
        f" {counted(found['differing'], 'duplicate')} with other content"
    )
    typer.echo(
        f"{counted(found['unrouted_batches'], 'batch')} with"
        f" {counted(found['unrouted_entries'], 'entry')} to route"
    )
    for rows, columns, title in (
        (found["newest_batches"], _BATCHES, "Newest batches"),
        (found["checkpoints"], _CHECKPOINTS, "Checkpoints"),
        (found["undelivered"], _UNDELIVERED, "Undelivered"),
        (found["open_quarantine"], _QUARANTINED, "Quarantined and open"),
        (found["divergences"], _DIVERGENCES, "Diverged replays"),
    ):
        if rows:
            print_rows(rows, columns, title)
        elif rows is found["undelivered"] and found["unrouted_entries"]:
            waiting = counted(found["unrouted_entries"], "entry")
            typer.echo(f"{title}: {waiting} to route; none of the routed ones")
        else:
            console().print(f"{title}: none")
    if found["divergences"]:
        newest = found["divergences"][0]
        typer.echo(
            f"to compare one: holdfast batch diff {found['name']} {newest['batch_id']}"
            f" --query-id {newest['query_id']} --divergence {newest['id']}"
        )


def query_id_in(checkpoint: str | None) -> UUID | None:
    """Return the query id of a checkpoint; None if it cannot be read on this machine.

    >>> query_id_in("s3a://bucket/checkpoints") is None
    True
    """
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        return UUID(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
