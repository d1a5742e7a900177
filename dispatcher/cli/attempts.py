"""`holdfast attempt`: the attempts of an entry, of a subject or of all subjects."""

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    BeforeCursor,
    Dsn,
    Limit,
    OfEndpoint,
    Since,
    Until,
    Wide,
    when_of,
)
from holdfast.dispatcher.cli.output import Page, display, print_page, print_rows, shortened, visible
from holdfast.dispatcher.operators.attempts.store import (
    SCAN_MAX,
    AttemptFilter,
    AttemptPlace,
    Attempts,
    NewestPlace,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import Outcome

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
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    before: BeforeCursor = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List the attempts of an entry or of a subject, the newest sequence first.

    Without either, lists the attempts of all subjects, the newest first. --json includes the
    receivers' responses. Exit code 3: none match.
    """
    begin, end = when_of("--since", since), when_of("--until", until)
    parsed = _parsed(key, subject, sequence)
    place, newest = _place(before, all_subjects=parsed is None and subject is None)
    older: AttemptPlace | NewestPlace | None
    with Attempts.connect(dsn) as store:
        wanted = AttemptFilter(
            endpoint, outcome and outcome.value, store.moment(begin), store.moment(end)
        )
        if parsed is not None:
            rows, older = store.of_key(parsed, wanted, limit=limit, before=place)
        elif subject is not None:
            rows, older = store.of_subject(
                subject, wanted, sequence=sequence, limit=limit, before=place
            )
        else:
            rows, older = store.of_all_subjects(wanted, limit=limit, before=newest)
    nothing = (
        "no attempt matches. Nothing was changed; `holdfast why` shows what an entry waits for."
    )
    page = Page("attempts", rows, None if older is None else str(older))
    if not rows and older is not None and not as_json:
        typer.echo(f"none of the newest {SCAN_MAX:,} matches")
    print_page(page, _print_list, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row]) -> None:
    seen = [{**row, "subject": visible(row["subject"]), "detail": _detail(row)} for row in rows]
    print_rows(seen, _COLUMNS, "Attempts", ("duration_ms", "number"))


def _parsed(key: str | None, subject: str | None, sequence: int | None) -> Key | None:
    if key is not None and subject is not None:
        raise CommandError(
            "KEY and --subject exclude each other; give neither for all subjects. Nothing was"
            " changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    if sequence is not None and subject is None:
        raise CommandError(
            "--sequence needs --subject. Nothing was changed.",
            ExitCode.USAGE,
            code="missing_parameter",
        )
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
