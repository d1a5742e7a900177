"""`holdfast quarantine`: rows that were set aside, and what a person can do about them."""

import re
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from holdfast.dispatcher.cli import verbs
from holdfast.dispatcher.cli.options import (
    NUMBER_MAX,
    AsJson,
    Dsn,
    OfStream,
    Reason,
    Since,
    Until,
    Yes,
    reason_of,
    when_of,
)
from holdfast.dispatcher.cli.output import (
    print_json,
    visible,
)
from holdfast.dispatcher.cli.quarantine import many
from holdfast.dispatcher.cli.quarantine.row_files import (
    check_job_directory,
    corrected_texts,
    write_lines,
)
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.quarantine.actions import (
    PutBack,
    Way,
    can_go_back,
    put_back,
    resolved_text,
    why_two,
)
from holdfast.dispatcher.operators.quarantine.many import ALONE_ROWS_MAX, ROWS, Task
from holdfast.dispatcher.operators.quarantine.rules import is_entry, reason_text
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.dispatcher.operators.quarantine.verbs import GROUP, dismiss_rows
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineResolution

app = verbs.group(GROUP)

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]", min=1, max=NUMBER_MAX, help="Row ids, as `list` shows them."),
]

ADVICE = (
    "`holdfast quarantine export` writes rows as lines: correct `row` in the file, then put it"
    " back with `holdfast quarantine requeue ID --row FILE --reason TEXT`"
)
"""Advice for a row that was refused again."""

_LINE_BREAKS = re.compile(r"[\r\n]+")


@app.command()
def requeue(
    reason: Reason,
    ids: Ids = None,
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
    reason_is: many.ReasonIs = None,
    stream: OfStream = None,
    since: Since = None,
    until: Until = None,
    limit: many.Limit = ROWS,
    alone: many.Alone = ALONE_ROWS_MAX,
    dry_run: many.DryRun = False,
    yes: Yes = False,
    proposal: many.ByProposal = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Put rows back: entries into the outbox, source lines to the job that refused them.

    A corrected row that is a different decision (subject, key, type, time, data, an event's
    amount), or whose stored row cannot be read, is only proposed: a second person approves it, then
    --proposal writes it. So is a row that would follow a newer decision of its subject. Corrections
    of non-canonical numbers, and of what the reason names, need no approval. Idempotent: a row is
    put back once; one that is refused again stays open.

    Without ids, the rows that --reason-is, --stream, --since and --until find (by the time they
    were set aside) are shown and, once confirmed, put back as they are stored. More than --alone
    rows are only proposed. Exit code 3: none match; 4: some rows were refused or need approval; 1:
    all were refused.
    """
    why = reason_of(reason)
    way = Way(suppress_repeats=suppress_repeats, into=str(into.absolute()) if into else None)
    with Quarantine.connect(dsn) as store:
        filter_ = _filter(store, reason_is, stream, since, until)
        other = row is not None or way != Way()
        _one_way(ids, proposal, filter_, dry_run=dry_run, other=other)
        plan = None if proposal is None else store.find_proposal(proposal)
        if ids:
            result = _put_named_back(store, dsn, ids, why, row, into, way, plan)
            _report(result, as_json=as_json)
        elif plan is not None:
            many.apply(store, dsn, plan, QuarantineResolution.REQUEUED, why, as_json=as_json)
        else:
            _no_file(row)
            if into is not None:
                check_job_directory(into)
            task = Task(QuarantineResolution.REQUEUED, way)
            asked = many.Ask(limit=limit, alone=alone, dry_run=dry_run, yes=yes, as_json=as_json)
            many.run(store, dsn, filter_, task, why, asked)


@app.command()
def dismiss(
    reason: Reason,
    ids: Ids = None,
    reason_is: many.ReasonIs = None,
    stream: OfStream = None,
    since: Since = None,
    until: Until = None,
    limit: many.Limit = ROWS,
    alone: many.Alone = ALONE_ROWS_MAX,
    dry_run: many.DryRun = False,
    yes: Yes = False,
    proposal: many.ByProposal = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Dismiss rows that need no action. `list --all` still shows them.

    Without ids, those that --reason-is, --stream, --since and --until find are shown and, once
    confirmed, dismissed. More than --alone rows are only proposed. Exit code 3: none match; 4: some
    need approval.
    """
    why = reason_of(reason)
    with Quarantine.connect(dsn) as store:
        filter_ = _filter(store, reason_is, stream, since, until)
        _one_way(ids, proposal, filter_, dry_run=dry_run, other=bool(ids))
        if ids:
            result = dismiss_rows(store, ids, why)
            _print_dismissed(result, why, as_json=as_json)
        elif proposal is not None:
            plan, done = store.find_proposal(proposal), QuarantineResolution.DISMISSED
            many.apply(store, dsn, plan, done, why, as_json=as_json)
        else:
            task = Task(QuarantineResolution.DISMISSED)
            asked = many.Ask(limit=limit, alone=alone, dry_run=dry_run, yes=yes, as_json=as_json)
            many.run(store, dsn, filter_, task, why, asked)


def _filter(
    store: Quarantine,
    reason: str | None,
    stream: str | None,
    since: str | None,
    until: str | None,
) -> Filter:
    begin, end = when_of("--since", since), when_of("--until", until)
    return Filter(stream, reason, store.moment(begin), store.moment(end))


def _one_way(
    ids: list[int] | None, proposal: str | None, filter_: Filter, *, dry_run: bool, other: bool
) -> None:
    """Raise `CommandError` (usage) for rows that are named in two ways.

    `other`: options that only ids, or only a filter, may have.
    """
    by_filter = filter_ != Filter() or dry_run
    if proposal is not None and (len(ids or [0]) != 1 or by_filter or other):
        what = "--proposal takes at most one row and no other option"
    elif ids and by_filter:
        what = "name rows by their ids, or by a filter: not both"
    else:
        return
    raise CommandError(
        f"{what}. Nothing was changed.", ExitCode.USAGE, code="conflicting_parameters"
    )


def _no_file(row: Path | None) -> None:
    if row is not None:
        raise CommandError(
            "--row corrects rows that are named by their ids. Nothing was changed.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )


def _put_named_back(
    store: Quarantine,
    dsn: str | None,
    ids: list[int],
    why: str,
    row: Path | None,
    into: Path | None,
    way: Way,
    plan: UUID | None,
) -> PutBack:
    def texts(rows: list[Row]) -> dict[int, str]:
        ready = texts_of(rows, row, lines=into is not None)
        if into is not None:
            check_job_directory(into)
        return ready

    return put_back(store, dsn or "", ids, why, texts, way, proposal=plan, write_lines=write_lines)


def _report(result: PutBack, *, as_json: bool) -> None:
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
    before = [{"id": e["id"], "detail": resolved_text(e)} for e in result.before]
    _print_rows("nothing done", before)


def _print_dismissed(result: Row, why: str, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    for number in result["dismissed"]:
        typer.echo(f"row {number} dismissed: {visible(why)}")
    before = [{"id": e["id"], "detail": resolved_text(e)} for e in result["resolved_before"]]
    _print_rows("nothing done", before)


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
            f"row {row['id']} was refused as an entry ({reason_text(row)}), so no job reads it."
            " Nothing was changed; omit --into, and correct the row with --row FILE."
        )
    return (
        f"row {row['id']} was refused before it became an entry ({reason_text(row)}). Nothing was"
        " changed; give it back to the job with --into and the directory that the job reads,"
        " corrected with --row FILE."
    )
