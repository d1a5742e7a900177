"""`holdfast dead`: dead letters, and what a person can do about them."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    BeforeId,
    Dsn,
    Limit,
    OfEndpoint,
    OfSubject,
    Output,
    Reason,
    Wide,
    reason_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    counted,
    export_rows,
    print_facts,
    print_json,
    print_page,
    print_rows,
    shortened,
    visible,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.dead_letters.rules import what_helps, what_it_holds
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters, Filter, resolved
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import DeadReason

app = typer.Typer(
    help="Dead letters: list, show, export, dismiss. `redeliver` sends them again.",
    no_args_is_help=True,
)

Number = Annotated[int, typer.Argument(metavar="ID", min=1, max=NUMBER_MAX)]
Numbers = Annotated[
    list[int],
    typer.Argument(metavar="ID...", min=1, max=NUMBER_MAX, help="Ids, as `list` shows them."),
]
Why = Annotated[
    DeadReason | None, typer.Option("--reason", help="Only dead letters with this reason.")
]
Open = Annotated[bool, typer.Option("--open/--all", help="Only unresolved ones, or all.")]
Resolved = Annotated[
    bool, typer.Option("--resolved", help="Only resolved ones: who, when and how.")
]

_LIST = ("id", "endpoint", "subject", "sequence", "key", "type", "reason", "detail")
_LIST_OPEN = (*_LIST, "attempts", "died_at", "holds_lane")
_LIST_ALL = (*_LIST, "died_at", "resolution", "resolved_at", "resolved_by", "resolution_reason")
_FACTS = (
    *("key", "endpoint", "subject", "sequence", "type", "reason", "detail", "attempts"),
    *("written_at", "died_at", "resolution", "resolved_at", "resolved_by", "resolution_reason"),
)
_ATTEMPTS = ("number", "finished_at", "outcome", "status", "duration_ms", "error", "response")


@app.command("list")
def list_(
    endpoint: OfEndpoint = None,
    subject: OfSubject = None,
    reason: Why = None,
    open_: Open = True,
    resolved_: Resolved = False,
    limit: Limit = 50,
    before: BeforeId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List dead letters, the newest first, without their bodies. Exit code 3: none match."""
    wanted = _filter(endpoint, subject, reason, open_, resolved_)
    with DeadLetters.connect(dsn) as store:
        rows = store.newest(wanted, limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    columns = _LIST_OPEN if wanted.open else _LIST_ALL
    nothing = "no dead letter matches. Nothing was changed; --all includes those that are resolved."
    page, show_rows = Page("dead_letters", rows, older), partial(_print_list, columns=columns)
    print_page(page, show_rows, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row], columns: Sequence[str]) -> None:
    leave_out = ("type", "resolved_by", "resolved_at", "attempts", "endpoint")
    print_rows([_table_row(row) for row in rows], columns, "Dead letters", leave_out)
    if any(row["holds_lane"] for row in rows):
        typer.echo("to see what a dead letter holds up and what to do: holdfast dead show ID")


@app.command()
def show(number: Number, dsn: Dsn = None, as_json: AsJson = False, _wide: Wide = False) -> None:
    """Show one: its body, its attempts, what it holds up, and what can be done."""
    with DeadLetters.connect(dsn) as store:
        row = store.one(number)
    holds, advice = what_it_holds(row), what_helps(row)
    if as_json:
        print_json({**row, "holds": holds, "advice": [each._asdict() for each in advice]})
        return
    typer.echo(f"dead letter {row['id']}")
    print_facts({**{name: row[name] for name in _FACTS}, "holds": holds}, 17)
    body = row["body"]
    typer.echo("\nbody: no longer stored, its partition was dropped" if body is None else "\nbody:")
    if body is not None:
        typer.echo(shortened(body))
    tried = [
        {
            **each,
            "error": _visible_or_none(each["error"]),
            "response": _visible_or_none(each["response"]),
        }
        for each in row["newest_attempts"]
    ]
    print_rows(tried, _ATTEMPTS, "Newest attempts")
    for each in advice:
        typer.echo(f"{each.command}\n    {each.effect}")


@app.command()
def export(
    endpoint: OfEndpoint = None,
    subject: OfSubject = None,
    reason: Why = None,
    open_: Open = True,
    resolved_: Resolved = False,
    output: Output = None,
    dsn: Dsn = None,
) -> None:
    """Write dead letters with their bodies as JSON lines, the oldest first. Exit code 3: none
    match.

    A body is null if its partition was dropped.
    """
    wanted = _filter(endpoint, subject, reason, open_, resolved_)
    with DeadLetters.connect(dsn) as store, store.export(wanted) as (count, rows):
        if not count:
            raise CommandError(
                "no dead letter matches; nothing was written.", ExitCode.NOTHING_MATCHED
            )
        export_rows(rows, count, output, "dead letter")


@app.command()
def dismiss(
    ids: Numbers,
    reason: Reason,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip", help="Release the lane that it holds; later entries go out without it."
        ),
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Dismiss dead letters: their receivers never get them. `list --all` still shows them.

    One that holds its lane is dismissed only with --skip, because later entries of its subject then
    go out without it.
    """
    why = reason_of(reason)
    with DeadLetters.connect(dsn) as store:
        done, before = store.dismiss(ids, why, skip=skip)
    if as_json:
        print_json({"dismissed": done, "resolved_before": before})
        return
    for row in done:
        after = f"; its lane continues, {_behind(row)}" if row["lane_goes_on"] else ""
        typer.echo(f"dead letter {row['id']} dismissed: {row['endpoint']} never gets it{after}")
    for row in before:
        typer.echo(f"dead letter {row['id']} unchanged: it is {resolved(row)}")


def _filter(
    endpoint: str | None,
    subject: str | None,
    reason: DeadReason | None,
    open_: bool,
    resolved_: bool,
) -> Filter:
    return Filter(endpoint, subject, reason, open_ and not resolved_, resolved_)


def _table_row(row: Row) -> Row:
    texts = ("subject", "detail", "resolution_reason")
    return {
        **row,
        **{name: _visible_or_none(row[name]) for name in texts},
        "holds_lane": "yes" if row["holds_lane"] else "no",
    }


def _behind(row: Row) -> str:
    return f"with {counted(row['waiting'], 'entry')} behind it" if row["waiting"] else "and is idle"


def _visible_or_none(text: str | None) -> str | None:
    return None if text is None else visible(text)
