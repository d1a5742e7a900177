"""`holdfast stream`: the sinks' streams and the checkpoints that they have adopted."""

from typing import Annotated

import typer

from dispatcher.cli.common.checkpoint import query_id_in
from dispatcher.cli.common.shared import AsJson, Dsn, Reason, console, print_json, print_rows
from dispatcher.cli.common.shown import counted, plain, query_id_of, reason_of
from dispatcher.operators.common.session import Row
from dispatcher.operators.streams.store import Streams
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="Streams: list and show them, adopt a new checkpoint.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The stream.")]

_FACTS = ("query_id", "epoch", "run_id", "checkpoint", "created_at", "adopted_at", "started_at")
_CHECKPOINTS = ("query_id", "batches", "first_batch_id", "last_batch_id", "last_written_at")
_BATCHES = ("batch_id", "written_at", "row_count", "entry_count", "routed_at", "divergences")
_UNDELIVERED = (
    *("endpoint", "state", "undelivered", "complete", "dead_letters", "oldest_created_at"),
)
_QUARANTINED = ("reason", "open", "oldest_quarantined_at")
_DIVERGENCES = (
    *("id", "query_id", "batch_id", "differing_count", "rows_then", "rows_now", "found_at"),
)


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the streams with the query id that each has adopted and its newest batch."""
    with Streams.connect(dsn) as store:
        rows = store.streams()
    if as_json:
        print_json(rows)
        return
    print_rows(rows, ("name", "query_id", "epoch", "last_batch_id", "last_written_at"), "Streams")


@app.command()
def show(name: Name, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show a stream: its checkpoint and run, its newest batches, and what needs a look."""
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
            "--checkpoint", help="The new checkpoint, if it is not where the stream's last one was."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Believe the id, though nothing here has seen it.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Accept batches of another checkpoint. Decisions made before keep their keys: none repeats.

    A wrong id would stop the right run. So it is compared with the checkpoint, as far as that can
    be read on this machine, and with what the stream has of other checkpoints.
    """
    wanted = query_id_of(query_id)
    if wanted is None:
        raise CommandError("--query-id is missing. Nothing was changed.", ExitCode.USAGE)
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
            f" {plain(row['adopted_at'])}; nothing was changed"
        )
    else:
        typer.echo(
            f"stream {name} now accepts query id {row['query_id']}"
            f" (before: {row['previous_query_id'] or 'none'})"
        )


def _show(found: Row) -> None:
    typer.echo(f"stream {found['name']}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<11} {plain(found[fact])}")
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
            typer.echo(f"{title}: {waiting} to route; of what is routed: none")
        else:
            console().print(f"{title}: none")
    if found["divergences"]:
        newest = found["divergences"][0]
        typer.echo(
            f"to compare one: holdfast batch diff {found['name']} {newest['batch_id']}"
            f" --query-id {newest['query_id']} --divergence {newest['id']}"
        )
