"""`holdfast attempts`: every try of an entry, a subject or everybody, and what came of it."""

from typing import Annotated

import typer

from dispatcher.cli.common.shared import AsJson, Dsn, print_json, print_rows
from dispatcher.cli.common.shown import moment_of, plain, shortened, visible
from dispatcher.operators.attempts.store import (
    SCAN_MAX,
    AttemptPlace,
    Attempts,
    NewestPlace,
    Wanted,
)
from dispatcher.operators.common.session import Row
from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.states import Outcome

app = typer.Typer(help="Attempts: every try, and what came of it.", no_args_is_help=True)

_COLUMNS = (
    "finished_at",
    "endpoint",
    "subject",
    "sequence",
    "number",
    "outcome",
    "status",
    "duration_ms",
    "detail",
)
_DETAIL_CHARACTERS = 120


@app.command("list")
def list_(
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="As receivers get it: hf_...")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Of this subject, in place of a key.")
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option("--sequence", min=1, max=2**63 - 1, help="Of --subject: this entry."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Only at this endpoint.")
    ] = None,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Only with this outcome.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only finished then or later (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only finished before then (RFC 3339).")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Attempts at most.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", help="Only older ones: where the last page ended.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the attempts of an entry or of a subject, the newest sequence first.

    Without either, those of everybody, the newest first. What a receiver answered is in the
    --json. Exit 3: none matches.
    """
    wanted = Wanted(
        endpoint=endpoint,
        outcome=outcome and outcome.value,
        since=moment_of("--since", since),
        until=moment_of("--until", until),
    )
    parsed = _parsed(key, subject, sequence)
    place, newest = _place(before, everybody=parsed is None and subject is None)
    older: AttemptPlace | NewestPlace | None
    with Attempts.connect(dsn) as store:
        if parsed is not None:
            rows, older = store.of_key(parsed, wanted, limit=limit, before=place)
        elif subject is not None:
            rows, older = store.of_subject(
                subject, wanted, sequence=sequence, limit=limit, before=place
            )
        else:
            rows, older = store.of_all_subjects(wanted, limit=limit, before=newest)
    if not rows and older is None:
        raise CommandError(
            "no attempt matches. Nothing was changed; `holdfast why` says what an entry waits for.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json({"attempts": rows, "next_before": None if older is None else str(older)})
        return
    seen = [{**row, "subject": visible(row["subject"]), "detail": _detail(row)} for row in rows]
    print_rows(seen, _COLUMNS, "Attempts")
    if older is not None:
        said = "older ones" if rows else f"none of the newest {SCAN_MAX:,} matches; older ones"
        typer.echo(f"{said}: --before {older}")


def _parsed(key: str | None, subject: str | None, sequence: int | None) -> Key | None:
    if key is not None and subject is not None:
        raise CommandError(
            "say whose attempts: a KEY, or --subject, or neither for everybody's. Nothing was"
            " changed.",
            ExitCode.USAGE,
        )
    if sequence is not None and subject is None:
        raise CommandError("--sequence needs --subject. Nothing was changed.", ExitCode.USAGE)
    try:
        return None if key is None else Key.parse(key)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None


def _place(
    before: str | None, *, everybody: bool
) -> tuple[AttemptPlace | None, NewestPlace | None]:
    if before is None:
        return None, None
    return (None, NewestPlace.of(before)) if everybody else (AttemptPlace.of(before), None)


def _detail(row: Row) -> str:
    """What is worth a cell: our words for it, the receipt, when it is tried again."""
    said = [shortened(row["error"], _DETAIL_CHARACTERS)] if row["error"] else []
    if row["receipt"] is not None:
        said.append(f"receipt {plain(row['receipt']['outcome'])}")
    if row["retry_at"] is not None:
        said.append(f"again {plain(row['retry_at'])}")
    return "; ".join(said) or "-"
