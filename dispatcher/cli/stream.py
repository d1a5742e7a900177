"""`holdfast stream`: the sinks' streams and the checkpoints that they have adopted."""

from typing import Annotated
from uuid import UUID

import typer

from dispatcher.cli.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.store.operator import operator_store
from sink.contract.exits import CommandError, ExitCode

app = typer.Typer(help="Streams: list them, adopt a new checkpoint.", no_args_is_help=True)


@app.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the streams with the query id that each has adopted and its newest batch."""
    with operator_store(dsn) as store:
        rows = store.streams()
    if as_json:
        print_json(rows)
        return
    print_rows(rows, ("name", "query_id", "epoch", "last_batch_id", "last_written_at"), "Streams")


@app.command()
def adopt(
    name: Annotated[str, typer.Argument(help="The stream.")],
    query_id: Annotated[
        str, typer.Option("--query-id", help="The id in the new checkpoint's `metadata` file.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Accept batches of another checkpoint. Decisions made before keep their keys: none repeats."""
    try:
        wanted = UUID(query_id)
    except ValueError:
        raise CommandError(
            f"--query-id {query_id!r} is not a UUID. Nothing was changed; the id stands in the"
            " file `metadata` of the checkpoint.",
            ExitCode.USAGE,
        ) from None
    if not reason.strip():
        raise CommandError("--reason must not be empty. Nothing was changed.", ExitCode.USAGE)
    with operator_store(dsn) as store:
        row = store.adopt(name, str(wanted), reason)
    if as_json:
        print_json(row)
    else:
        typer.echo(
            f"stream {name} now accepts query id {row['query_id']}"
            f" (before: {row['previous_query_id'] or 'none'})"
        )
