"""`holdfast suppressed`: decisions that were recorded and not written; writing one after all."""

from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json
from dispatcher.cli.common.shown import moment_of, reason_of
from dispatcher.cli.subjects import suppressed_shown
from dispatcher.operators.suppressed.actions import write_overtaken
from dispatcher.operators.suppressed.store import (
    OvertakenDecisions,
    Place,
    SuppressedDecisions,
    Wanted,
)
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.requeue import writer
from sink.contract.states import SuppressedCause

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="As receivers get it: hf_...")]

app = typer.Typer(
    help="Suppressed decisions, which repeat one or were overtaken: list, show, write.",
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
    with SuppressedDecisions.connect(dsn) as store:
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
    key: KeyArgument,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a suppressed decision with its content. Exit 3: the key was not suppressed."""
    wanted = _key(key)
    with SuppressedDecisions.connect(dsn) as store:
        found = store.decision(wanted)
    if as_json:
        print_json(found)
    else:
        suppressed_shown.shown(found)


@app.command()
def write(
    key: KeyArgument,
    reason: Reason,
    proposal: Annotated[
        str | None, typer.Option("--proposal", help="Write what a second person approved.")
    ] = None,
    despite_later: Annotated[
        bool,
        typer.Option(
            "--despite-later", help="Also if later decisions of the subject were suppressed."
        ),
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Write an overtaken decision after all, under a new key: its receivers act on it.

    Proposes it (exit 4); a second person approves it, and --proposal writes it once. Repair a
    silenced subject first (`holdfast subjects repair`). Exit 3: no such decision is stored.
    """
    wanted, why = _key(key), reason_of(reason)
    if proposal is not None and despite_later:
        raise CommandError(
            "give --proposal without --despite-later: what was approved says the rest. Nothing was"
            " changed.",
            ExitCode.USAGE,
        )
    writer()  # Report a missing package before anything is proposed.
    with OvertakenDecisions.connect(dsn) as store:
        if proposal is not None:
            done = write_overtaken(dsn, store, wanted, store.find_proposal(proposal), why)
            if as_json:
                print_json(done)
            else:
                suppressed_shown.written(done)
            return
        told = store.propose_write(wanted, why, despite_later=despite_later)
    short = told["proposal"].hex[:8]
    approve = f"holdfast proposal approve {short} --reason TEXT"
    apply = f"holdfast suppressed write --proposal {short} --reason TEXT {told['key']}"
    if as_json:
        print_json({**told, "approve": approve, "apply": apply})
    else:
        suppressed_shown.proposed(told, approve, apply)
    raise typer.Exit(ExitCode.DEGRADED)


def _key(text: str) -> Key:
    try:
        return Key.parse(text)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None
