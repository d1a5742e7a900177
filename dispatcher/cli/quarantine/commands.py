"""`holdfast quarantine`: rows that were set aside, and what a person can do about them."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    BeforeId,
    Dsn,
    Limit,
    OfStream,
    Output,
    Reason,
    Wide,
    reason_of,
)
from holdfast.dispatcher.cli.output import (
    Page,
    export_rows,
    print_facts,
    print_json,
    print_page,
    print_rows,
    shortened,
    visible,
)
from holdfast.dispatcher.cli.quarantine.row_files import (
    check_job_directory,
    corrected_texts,
    write_lines,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.quarantine.actions import (
    WHY,
    PutBack,
    Way,
    can_go_back,
    put_back,
    resolved_text,
    why_two,
)
from holdfast.dispatcher.operators.quarantine.actions import dismiss as dismiss_rows
from holdfast.dispatcher.operators.quarantine.rules import is_entry, what_helps
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason

app = typer.Typer(
    help="Quarantined rows: list, show, export, requeue, dismiss.", no_args_is_help=True
)

Ids = Annotated[
    list[int], typer.Argument(min=1, max=NUMBER_MAX, help="Row ids, as `list` shows them.")
]

Why = Annotated[
    QuarantineReason | None, typer.Option("--reason", help="Only rows set aside for this reason.")
]

Open = Annotated[bool, typer.Option("--open/--all", help="Only unresolved rows, or all.")]

Resolved = Annotated[
    bool, typer.Option("--resolved", help="Only resolved rows: who, when and why.")
]

_LIST = ("id", "stream", "batch_id", "reason", "detail", "quarantined_at", "resolution")

_LIST_RESOLVED = (*_LIST[:-1], *WHY)

_FACTS = (
    *("stream", "query_id", "batch_id", "batch_no", "reason", "detail", "quarantined_at", *WHY),
)

ADVICE = (
    "`holdfast quarantine export` writes rows as lines: correct `row` in the file, then put it"
    " back with `holdfast quarantine requeue ID --row FILE --reason TEXT`"
)
"""Advice for a row that was refused again."""

_LINE_BREAKS = re.compile(r"[\r\n]+")


@app.command("list")
def list_(
    stream: OfStream = None,
    reason: Why = None,
    open_: Open = True,
    resolved: Resolved = False,
    limit: Limit = 50,
    before: BeforeId = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """List quarantined rows, the newest first, without their text. Exit code 3: none match."""
    with Quarantine.connect(dsn) as store:
        rows = store.newest(_filter(stream, reason, open_, resolved), limit=limit, before=before)
    older = rows[-1]["id"] if len(rows) == limit else None
    columns = _LIST if open_ and not resolved else _LIST_RESOLVED
    nothing = "no quarantined row matches. Nothing was changed; --all includes resolved ones."
    page, show_rows = Page("rows", rows, older), partial(_print_list, columns=columns)
    print_page(page, show_rows, nothing, as_json=as_json)


def _print_list(rows: Sequence[Row], columns: Sequence[str]) -> None:
    seen = [_table_row(row) for row in rows]
    print_rows(seen, columns, "Quarantine", ("batch_id", "resolved_by", "resolved_at"))


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, max=NUMBER_MAX)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show a row with its text, and what can be done about it."""
    with Quarantine.connect(dsn) as store:
        [row] = store.take([number])
    if as_json:
        print_json(row)
        return
    typer.echo(f"row {row['id']}")
    print_facts({name: row[name] for name in _FACTS}, 17)
    typer.echo(f"\n{shortened(row['row'])}")
    if row["resolution"] is None:
        for each in what_helps(row):
            typer.echo(f"{each.command}\n    {each.effect}")


@app.command()
def export(
    stream: OfStream = None,
    reason: Why = None,
    open_: Open = True,
    resolved: Resolved = False,
    output: Output = None,
    dsn: Dsn = None,
) -> None:
    """Write rows with their text as JSON lines, the oldest first. Exit code 3: none match."""
    wanted = _filter(stream, reason, open_, resolved)
    with Quarantine.connect(dsn) as store, store.export(wanted) as (count, rows):
        if not count:
            raise CommandError(
                "no row of the quarantine matches; nothing was written.",
                ExitCode.NOTHING_MATCHED,
                code="nothing_matched",
            )
        export_rows(rows, count, output, "row")


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
            help="A file with the corrected row (JSON), or with corrected lines of `export`.",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="The job's input directory, for rows that the job refused."),
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

    A corrected row that is a different decision (subject, key, type, time, data, an event's
    amount), or whose stored row cannot be read, is only proposed: a second person approves it, then
    --proposal writes it. So is a row that would follow a newer decision of its subject. Corrections
    of non-canonical numbers, and of what the reason names, need no approval. Idempotent: a row is
    put back once; one that is refused again stays open. Exit code 4: some rows were refused or need
    approval; 1: all were refused.
    """
    why = reason_of(reason)
    way = Way(suppress_repeats=suppress_repeats, into=str(into.absolute()) if into else None)
    if proposal is not None and (len(ids) != 1 or row is not None or way != Way()):
        raise CommandError(
            "--proposal takes exactly one row and no other option. Nothing was changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )

    def texts(rows: list[Row]) -> dict[int, str]:
        ready = texts_of(rows, row, lines=into is not None)
        if into is not None:
            check_job_directory(into)
        return ready

    with Quarantine.connect(dsn) as store:
        plan = None if proposal is None else store.find_proposal(proposal)
        result = put_back(
            store, dsn or "", ids, why, texts, way, proposal=plan, write_lines=write_lines
        )
    if as_json:
        names = {"requeued": result.done, "refused": result.refused, "proposed": result.proposed}
        said = {**names, "resolved_before": result.before}
        print_json({**said, "advice": ADVICE} if result.refused else said)
    else:
        _print_put_back(result)
    if result.refused or result.proposed:
        some = result.done or result.proposed
        raise typer.Exit(ExitCode.DEGRADED if some else ExitCode.FAILED)


def _print_put_back(result: PutBack) -> None:
    _print_rows("put back", result.done)
    _print_rows("refused again, still open", result.refused)
    if result.refused:
        typer.echo(ADVICE)
    for each in result.proposed:
        why = visible(why_two(each["differs"], each["overtakes"]))
        typer.echo(
            f"row {each['id']} is proposed: it {why}. Nothing of it was written. A second person"
            f" approves it with\n  {each['approve']}\nThen apply it with\n  {each['apply']}"
        )
    _print_rows(
        "nothing done", [{"id": e["id"], "detail": resolved_text(e)} for e in result.before]
    )


@app.command()
def dismiss(ids: Ids, reason: Reason, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Dismiss rows that need no action. `list --all` still shows them."""
    why = reason_of(reason)
    with Quarantine.connect(dsn) as store:
        done, before = dismiss_rows(store, ids, why)
    if as_json:
        print_json({"dismissed": done, "resolved_before": before})
    else:
        _print_rows("dismissed", [{"id": each, "detail": why} for each in done])
        _print_rows("nothing done", [{"id": e["id"], "detail": resolved_text(e)} for e in before])


def _filter(
    stream: str | None, reason: QuarantineReason | None, open_: bool, resolved: bool
) -> Filter:
    return Filter(stream, reason, open_ and not resolved, resolved)


def _table_row(row: Row) -> Row:
    why = row["resolution_reason"]
    return {
        **row,
        "detail": visible(row["detail"]),
        "resolution_reason": visible(why) if why else None,
    }


def _print_rows(heading: str, rows: list[Row]) -> None:
    for row in rows:
        typer.echo(f"row {row['id']} {heading}: {visible(row['detail'])}")


def texts_of(rows: list[Row], file: Path | None, *, lines: bool) -> dict[int, str]:
    """Return the text to put back for each row, by its id: the corrected row, else the stored one.

    `lines`: they go to the job, not into the outbox. Raises `CommandError` for a row that cannot go
    that way.
    """
    wrong = [row for row in rows if is_entry(row) == lines]
    if wrong:
        raise CommandError(
            _wrong_way(wrong[0], lines=lines), ExitCode.USAGE, code="wrong_destination"
        )
    kept = {row["id"]: row["row"] for row in rows}
    texts = kept if file is None else corrected_texts(file, rows)
    can_go_back(rows, texts)
    if lines and file is not None:
        # A line must not contain line breaks; between JSON tokens, a space is equivalent.
        return {number: _LINE_BREAKS.sub(" ", text) for number, text in texts.items()}
    return texts


def _wrong_way(row: Row, *, lines: bool) -> str:
    if lines:
        return (
            f"row {row['id']} was refused as an entry ({row['reason']}), so no job reads it."
            " Nothing was changed; omit --into, and correct the row with --row FILE."
        )
    return (
        f"row {row['id']} was refused before it became an entry ({row['reason']}). Nothing was"
        " changed; give it back to the job with --into and the directory that the job reads,"
        " corrected with --row FILE."
    )
