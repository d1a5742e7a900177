"""`holdfast dead`: entries that were given up, and what a person can do about them."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.common.export import json_value, opened, watched
from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import counted, plain, reason_of, shortened, visible
from dispatcher.operators.common.session import Row
from dispatcher.operators.dead_letters.rules import what_helps, what_it_holds
from dispatcher.operators.dead_letters.store import DeadLetters, Filter, resolved
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import DeadReason

app = typer.Typer(
    help="Dead letters: list, show, export, give up. `redeliver` sends them again.",
    no_args_is_help=True,
)

Number = Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1)]
Numbers = Annotated[
    list[int],
    typer.Argument(metavar="ID...", min=1, max=2**63 - 1, help="Numbers, as `list` shows them."),
]
OfEndpoint = Annotated[str | None, typer.Option("--endpoint", help="Only those of this endpoint.")]
OfSubject = Annotated[str | None, typer.Option("--subject", help="Only those of this subject.")]
Why = Annotated[DeadReason | None, typer.Option("--reason", help="Only those that died of this.")]
Open = Annotated[
    bool, typer.Option("--open/--all", help="Only those that nobody resolved, or all of them.")
]
Resolved = Annotated[
    bool, typer.Option("--resolved", help="Only those that somebody resolved: who, when and how.")
]

_LIST = ("id", "endpoint", "subject", "sequence", "key", "type", "reason", "detail")
_LIST_OPEN = (*_LIST, "attempts", "died_at", "holds_lane")
_LIST_ALL = (*_LIST, "died_at", "resolution", "resolved_at", "resolved_by", "resolution_reason")
_FACTS = (
    *("key", "endpoint", "subject", "sequence", "type", "reason", "detail", "attempts"),
    *("created_at", "died_at", "resolution", "resolved_at", "resolved_by", "resolution_reason"),
)
_ATTEMPTS = ("number", "finished_at", "outcome", "status", "duration_ms", "error", "response")


@app.command("list")
def list_(
    endpoint: OfEndpoint = None,
    subject: OfSubject = None,
    reason: Why = None,
    open_: Open = True,
    resolved_: Resolved = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="As many at most.")] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, max=2**63 - 1, help="Only numbers below this one."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first, without their bodies."""
    wanted = _filter(endpoint, subject, reason, open_, resolved_)
    with DeadLetters.connect(dsn) as store:
        rows = store.newest(wanted, limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    if as_json:
        print_json({"dead_letters": rows, "next_before": older})
        return
    columns = _LIST_OPEN if wanted.open else _LIST_ALL
    print_rows([_seen(row) for row in rows], columns, "Dead letters")
    if older is not None:
        typer.echo(f"older ones: --before {older}")
    if any(row["holds_lane"] for row in rows):
        typer.echo("what to do about one, and what waits behind it: holdfast dead show ID")


@app.command()
def show(number: Number, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show one: its body, what was tried, what it holds up, and what can be done about it."""
    with DeadLetters.connect(dsn) as store:
        row = store.one(number)
    holds, advice = what_it_holds(row), what_helps(row)
    if as_json:
        print_json({**row, "holds": holds, "advice": [each._asdict() for each in advice]})
        return
    typer.echo(f"dead letter {row['id']}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<17} {plain(row[fact])}")
    typer.echo(f"  {'holds':<17} {holds}")
    body = row["body"]
    typer.echo("\nbody: not stored any more, its day was dropped" if body is None else "\nbody:")
    if body is not None:
        typer.echo(shortened(body))
    tried = [
        {**each, "error": _text(each["error"]), "response": _text(each["response"])}
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
    output: Annotated[
        Path | None,
        typer.Option("--output", help="The file, replaced as a whole; standard output, if none."),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Write dead letters with their bodies as JSON lines, the oldest first. Exit 3: there are none.

    A body is null where its day was dropped.
    """
    wanted = _filter(endpoint, subject, reason, open_, resolved_)
    with DeadLetters.connect(dsn) as store, store.export(wanted) as (count, rows):
        if not count:
            raise CommandError(
                "no dead letter matches; nothing was written.", ExitCode.NOTHING_MATCHED
            )
        with opened(output) as file:
            for row in watched(rows, count, shown=output is not None):
                file.write(json.dumps(row, default=json_value, ensure_ascii=False) + "\n")
    if output is not None:
        typer.echo(f"{counted(count, 'dead letter')} written to {output}")


@app.command()
def dismiss(
    ids: Numbers,
    reason: Reason,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="Let the lane that it holds go on behind it, without it."),
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give dead letters up: their receivers never get them. They stay, and `--all` lists them.

    One that holds its lane is given up only with --skip, because the later entries of its subject
    go out then without it.
    """
    why = reason_of(reason)
    with DeadLetters.connect(dsn) as store:
        done, before = store.dismiss(ids, why, skip=skip)
    if as_json:
        print_json({"dismissed": done, "resolved_before": before})
        return
    for row in done:
        after = f"; its lane goes on, {_behind(row)}" if row["lane_goes_on"] else ""
        typer.echo(f"dead letter {row['id']} given up: {row['endpoint']} never gets it{after}")
    for row in before:
        typer.echo(f"dead letter {row['id']} nothing done: it is {resolved(row)}")


def _filter(
    endpoint: str | None,
    subject: str | None,
    reason: DeadReason | None,
    open_: bool,
    resolved_: bool,
) -> Filter:
    return Filter(endpoint, subject, reason, open_ and not resolved_, resolved_)


def _seen(row: Row) -> Row:
    texts = ("subject", "detail", "resolution_reason")
    return {
        **row,
        **{name: _text(row[name]) for name in texts},
        "holds_lane": "yes" if row["holds_lane"] else "no",
    }


def _behind(row: Row) -> str:
    return f"with {counted(row['waiting'], 'entry')} behind it" if row["waiting"] else "and is idle"


def _text(text: str | None) -> str | None:
    return None if text is None else visible(text)
