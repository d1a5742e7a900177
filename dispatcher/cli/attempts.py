"""`holdfast attempts`: the attempts of an entry, of a subject or of all subjects."""

from typing import Annotated

import typer

from dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    BeforeCursor,
    Dsn,
    Limit,
    OfEndpoint,
    key_of,
    moment_of,
)
from dispatcher.cli.output import display, print_json, print_rows, shortened, visible
from dispatcher.operators.attempts.store import (
    SCAN_MAX,
    AttemptPlace,
    Attempts,
    NewestPlace,
    Wanted,
)
from dispatcher.operators.common.session import Row
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key
from sink.contract.states import Outcome

app = typer.Typer(help="Attempts: each request for an entry and its outcome.", no_args_is_help=True)

_COLUMNS = (
    *("finished_at", "endpoint", "subject", "sequence", "number"),
    *("outcome", "status", "duration_ms", "detail"),
)
_DETAIL_CHARACTERS = 120


@app.command("list")
def list_(
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="As receivers get it: hf_...")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="The subject, instead of a key.")
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            "--sequence",
            min=1,
            max=NUMBER_MAX,
            help="With --subject: only the entry with this sequence.",
        ),
    ] = None,
    endpoint: OfEndpoint = None,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Only attempts with this outcome.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only attempts finished at or after this time (RFC 3339)."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", help="Only attempts finished before this time (RFC 3339)."),
    ] = None,
    limit: Limit = 50,
    before: BeforeCursor = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the attempts of an entry or of a subject, the newest sequence first.

    Without either, lists the attempts of all subjects, the newest first. --json includes the
    receivers' responses. Exit code 3: none match.
    """
    wanted = Wanted(
        endpoint=endpoint,
        outcome=outcome and outcome.value,
        since=moment_of("--since", since),
        until=moment_of("--until", until),
    )
    parsed = _parsed(key, subject, sequence)
    place, newest = _place(before, all_subjects=parsed is None and subject is None)
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
            "no attempt matches. Nothing was changed; `holdfast why` shows what an entry waits"
            " for.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json({"attempts": rows, "next_before": None if older is None else str(older)})
        return
    seen = [{**row, "subject": visible(row["subject"]), "detail": _detail(row)} for row in rows]
    print_rows(seen, _COLUMNS, "Attempts")
    if older is not None:
        said = "older rows" if rows else f"none of the newest {SCAN_MAX:,} matches; older rows"
        typer.echo(f"{said}: --before {older}")


def _parsed(key: str | None, subject: str | None, sequence: int | None) -> Key | None:
    if key is not None and subject is not None:
        raise CommandError(
            "KEY and --subject exclude each other; give neither for all subjects. Nothing was"
            " changed.",
            ExitCode.USAGE,
        )
    if sequence is not None and subject is None:
        raise CommandError("--sequence needs --subject. Nothing was changed.", ExitCode.USAGE)
    return None if key is None else key_of(key)


def _place(
    before: str | None, *, all_subjects: bool
) -> tuple[AttemptPlace | None, NewestPlace | None]:
    if before is None:
        return None, None
    return (None, NewestPlace.of(before)) if all_subjects else (AttemptPlace.of(before), None)


def _detail(row: Row) -> str:
    """Return the error, the receipt's outcome and the time of the next attempt as one cell."""
    said = [shortened(row["error"], _DETAIL_CHARACTERS)] if row["error"] else []
    if row["receipt"] is not None:
        said.append(f"receipt {display(row['receipt']['outcome'])}")
    if row["retry_at"] is not None:
        said.append(f"retry at {display(row['retry_at'])}")
    return "; ".join(said) or "-"
