"""`holdfast suppressed`: decisions that were recorded and not written, and why."""

from typing import Annotated

import typer

from dispatcher.cli import suppressed_shown
from dispatcher.cli.shared import AsJson, Dsn, print_json
from dispatcher.cli.shown import moment_of
from dispatcher.store.suppressed import Place, Wanted, suppressed
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.states import SuppressedCause

app = typer.Typer(
    help="Suppressed decisions, which repeat one or were overtaken: list them, show one.",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    stream: Annotated[
        str | None, typer.Option("--stream", help="Only decisions of this stream.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only decisions about this subject.")
    ] = None,
    cause: Annotated[
        SuppressedCause | None, typer.Option("--cause", help="Only decisions suppressed for this.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only suppressed then or later (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only suppressed before then (RFC 3339).")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Maximum number of rows.")
    ] = 50,
    before: Annotated[
        str | None, typer.Option("--before", help="Only older ones: where the last page ended.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List suppressed decisions, the newest first, without their content. Exit 3: none matches.

    `repeated`: the subject had this type already. `overtaken`: a decision of the subject that
    occurred later was written before. Each holds within one stream.
    """
    wanted = Wanted(
        stream=stream,
        subject=subject,
        cause=cause,
        since=moment_of("--since", since),
        until=moment_of("--until", until),
    )
    place = None if before is None else Place.of(before)
    with suppressed(dsn) as store:
        rows, older = store.newest(wanted, limit=limit, before=place)
    if not rows:
        raise CommandError(
            "no suppressed decision matches. Nothing was changed.", ExitCode.NOTHING_MATCHED
        )
    last = None if older is None else str(older)
    if as_json:
        print_json({"suppressed": rows, "next_before": last})
    else:
        suppressed_shown.listed(rows, last)


@app.command()
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As receivers get it: hf_...")],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a suppressed decision with its content. Exit 3: the key was not suppressed."""
    try:
        wanted = Key.parse(key)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None
    with suppressed(dsn) as store:
        found = store.decision(wanted)
    if as_json:
        print_json(found)
    else:
        suppressed_shown.shown(found)
