"""`holdfast quarantine`: rows that were set aside, and what a person can do about them."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.common.export import json_value, opened, watched
from dispatcher.cli.common.shared import AsJson, Dsn, Reason, print_json, print_rows
from dispatcher.cli.common.shown import counted, plain, reason_of, shortened, visible
from dispatcher.cli.quarantine.requeue import ADVICE, PutBack, put_back, put_back_approved
from dispatcher.operators.common.session import Row
from dispatcher.operators.quarantine.actions import WHY, Way, open_among, resolved_text
from dispatcher.operators.quarantine.rules import what_helps
from dispatcher.operators.quarantine.store import Filter, Quarantine
from sink.contract.exits import CommandError, ExitCode
from sink.contract.states import QuarantineReason, QuarantineResolution

app = typer.Typer(
    help="Rows that were set aside: list, export, put back, dismiss.", no_args_is_help=True
)

Ids = Annotated[
    list[int], typer.Argument(min=1, max=2**63 - 1, help="Numbers of rows, as `list` shows them.")
]
Stream = Annotated[str | None, typer.Option("--stream", help="Only rows of this stream.")]
Why = Annotated[
    QuarantineReason | None, typer.Option("--reason", help="Only rows set aside for this.")
]
Open = Annotated[
    bool, typer.Option("--open/--all", help="Only rows that nobody resolved, or all of them.")
]
Resolved = Annotated[
    bool, typer.Option("--resolved", help="Only rows that somebody resolved: who, when and why.")
]

_LIST = ("id", "stream", "batch_id", "reason", "detail", "quarantined_at", "resolution")
_LIST_RESOLVED = (*_LIST[:-1], *WHY)
_FACTS = (
    *("stream", "query_id", "batch_id", "batch_no", "reason", "detail", "quarantined_at", *WHY),
)


@app.command("list")
def list_(
    stream: Stream = None,
    reason: Why = None,
    open_: Open = True,
    resolved: Resolved = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Rows at most.")] = 50,
    before: Annotated[
        int | None,
        typer.Option("--before", min=1, max=2**63 - 1, help="Only numbers below this one."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List rows that were set aside, the newest first, without their texts."""
    with Quarantine.connect(dsn) as store:
        rows = store.newest(_filter(stream, reason, open_, resolved), limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    if as_json:
        print_json({"rows": rows, "next_before": older})
        return
    columns = _LIST if open_ and not resolved else _LIST_RESOLVED
    print_rows([_seen(row) for row in rows], columns, "Quarantine")
    if older is not None:
        typer.echo(f"older ones: --before {older}")


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, max=2**63 - 1)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show one row with its text, and what can be done about it."""
    with Quarantine.connect(dsn) as store:
        [row] = store.take([number])
    if as_json:
        print_json(row)
        return
    typer.echo(f"row {row['id']}")
    for fact in _FACTS:
        typer.echo(f"  {fact.replace('_', ' '):<17} {plain(row[fact])}")
    typer.echo(f"\n{shortened(row['row'])}")
    if row["resolution"] is None:
        for each in what_helps(row):
            typer.echo(f"{each.command}\n    {each.effect}")


@app.command()
def export(
    stream: Stream = None,
    reason: Why = None,
    open_: Open = True,
    resolved: Resolved = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="The file, replaced as a whole; standard output, if none."),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Write rows with their texts as JSON lines, the oldest first. Exit 3: there are none."""
    wanted = _filter(stream, reason, open_, resolved)
    with Quarantine.connect(dsn) as store, store.export(wanted) as (count, rows):
        if not count:
            raise CommandError(
                "no row of the quarantine matches; nothing was written.", ExitCode.NOTHING_MATCHED
            )
        with opened(output) as file:
            for row in watched(rows, count, shown=output is not None):
                file.write(json.dumps(row, default=json_value, ensure_ascii=False) + "\n")
    if output is not None:
        typer.echo(f"{counted(count, 'row')} written to {output}")


@app.command()
def requeue(
    ids: Ids,
    reason: Reason,
    row: Annotated[
        Path | None,
        typer.Option(
            "--row",
            exists=True,
            dir_okay=False,
            help="The corrected row (JSON), or corrected lines of `export`.",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="The job's directory, for rows that were refused there."),
    ] = None,
    suppress_repeats: Annotated[
        bool,
        typer.Option(
            "--suppress-repeats/--keep-repeats",
            help="Refuse an entry that is older than its subject's newest, or repeats its type.",
        ),
    ] = True,
    proposal: Annotated[
        str | None,
        typer.Option("--proposal", help="Write what a second person approved, and nothing else."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Put rows back: entries into the outbox, source lines to the job that refused them.

    A corrected row that is another decision (subject, key, type, time, data, an event's amount), or
    where the kept one cannot be read, is only proposed: a second person approves it, and --proposal
    writes it. One person corrects numbers of data that are not canonical, and what the reason
    names. Running it twice puts a row back once; one that is refused again stays open. Exit 4: some
    were refused, or wait for a second person; exit 1: all were refused.
    """
    why = reason_of(reason)
    way = Way(suppress_repeats=suppress_repeats, into=str(into.absolute()) if into else None)
    if proposal is not None and (len(ids) != 1 or row is not None or way != Way()):
        raise CommandError(
            "--proposal takes one row and no other option: what was approved says the rest."
            " Nothing was changed.",
            ExitCode.USAGE,
        )
    with Quarantine.connect(dsn) as store:
        if proposal is None:
            told = put_back(dsn, store, ids, row, way, why)
        else:
            told = put_back_approved(dsn, store, ids[0], store.find_proposal(proposal), why)
    if as_json:
        names = {"requeued": told.done, "refused": told.refused, "proposed": told.proposed}
        said = {**names, "resolved_before": told.before}
        print_json({**said, "advice": ADVICE} if told.refused else said)
    else:
        _tell_put_back(told)
    if told.refused or told.proposed:
        some = told.done or told.proposed
        raise typer.Exit(ExitCode.DEGRADED if some else ExitCode.FAILED)


def _tell_put_back(told: PutBack) -> None:
    _tell("put back", told.done)
    _tell("refused again, and still open", told.refused)
    if told.refused:
        typer.echo(ADVICE)
    for each in told.proposed:
        names = ", ".join(differing["member"] for differing in each["differs"])
        typer.echo(
            f"row {each['id']} is only proposed: it is another decision than the kept one"
            f" ({names}), or the kept one cannot be read. Nothing of it was written. A second"
            f" person says\n  {each['approve']}\nand then anybody\n  {each['apply']}"
        )
    _tell("nothing done", [{"id": e["id"], "detail": resolved_text(e)} for e in told.before])


@app.command()
def dismiss(ids: Ids, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Close rows that need nothing more; they stay in the quarantine, and `--all` lists them."""
    why = reason_of(reason)
    with Quarantine.connect(dsn) as store:
        rows, before = open_among(store, ids)
        done = store.resolve([row["id"] for row in rows], QuarantineResolution.DISMISSED, why)
    if as_json:
        print_json({"dismissed": done, "resolved_before": before})
    else:
        _tell("dismissed", [{"id": each, "detail": why} for each in done])
        _tell("nothing done", [{"id": e["id"], "detail": resolved_text(e)} for e in before])


def _filter(
    stream: str | None, reason: QuarantineReason | None, open_: bool, resolved: bool
) -> Filter:
    return Filter(stream, reason, open_ and not resolved, resolved)


def _seen(row: Row) -> Row:
    why = row["resolution_reason"]
    return {
        **row,
        "detail": visible(row["detail"]),
        "resolution_reason": visible(why) if why else None,
    }


def _tell(heading: str, rows: list[Row]) -> None:
    for row in rows:
        typer.echo(f"row {row['id']} {heading}: {visible(row['detail'])}")
