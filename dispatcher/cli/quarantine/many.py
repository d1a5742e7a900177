"""Rows that a filter finds: shown, then put back or dismissed once a person confirms."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from holdfast.dispatcher.cli.options import confirm, require_terminal
from holdfast.dispatcher.cli.output import counted, print_json, visible
from holdfast.dispatcher.cli.quarantine.row_files import write_lines
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.quarantine import many
from holdfast.dispatcher.operators.quarantine.actions import PutBack
from holdfast.dispatcher.operators.quarantine.many import (
    ALONE_ROWS_MAX,
    MEANS,
    OVERTAKES,
    READY,
    RECORDED,
    ROWS_MAX,
    Selection,
    Step,
    Task,
)
from holdfast.dispatcher.operators.quarantine.store import Filter, Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineResolution

ReasonIs = Annotated[
    str | None,
    typer.Option(
        "--reason-is",
        help="Rows set aside for this reason, or rejected by this rule of a job, in place of ids.",
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit",
        min=1,
        max=ROWS_MAX,
        help="Maximum number of rows that the filter takes, the oldest first.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what the filter finds, and change nothing.")
]
Alone = Annotated[
    int,
    typer.Option(
        "--alone",
        min=0,
        max=ALONE_ROWS_MAX,
        help="Number of rows by filter, including those of the last 24 hours, that need no approval"
        " by a second person.",
    ),
]
ByProposal = Annotated[
    str | None,
    typer.Option("--proposal", help="Do what a second person approved, and nothing else."),
]

DONE = {
    QuarantineResolution.REQUEUED: ("requeued", "put back", "Put"),
    QuarantineResolution.DISMISSED: ("dismissed", "dismissed", "Dismiss"),
}
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The options of a command that has a filter."""

    limit: int
    alone: int
    dry_run: bool
    yes: bool
    as_json: bool


def run(
    store: Quarantine, dsn: str | None, filter_: Filter, task: Task, reason: str, ask: Ask
) -> None:
    """Show what a filter finds, ask, and resolve it, or propose what needs a second person."""
    if not ask.dry_run:
        require_terminal(yes=ask.yes)
    with _progress("Comparing", ask.limit) as step:
        selection = many.select(store, dsn or "", filter_, task, limit=ask.limit, step=step)
    preview = selection.preview()
    if not ask.as_json:
        _print_preview(selection)
    if ask.dry_run:
        if ask.as_json:
            print_json({"preview": preview})
        return
    able = selection.of(READY, RECORDED, OVERTAKES)
    if able:
        word = DONE[task.resolution][2]
        back = " back" if word == "Put" else ""
        confirm(f"{word} {counted(len(able), 'row')}{back}?", yes=ask.yes)
    ids, proposal = many.divided(store, selection, task, reason, alone=ask.alone)
    result = _resolve(store, dsn, ids, task, reason, plan=None)
    _report(result, task, proposal, preview, as_json=ask.as_json)
    left = len(selection.rows) - len(able) + len(result.refused)
    if left or proposal is not None:
        some = result.done or proposal is not None
        raise typer.Exit(ExitCode.DEGRADED if some else ExitCode.FAILED)


def apply(
    store: Quarantine,
    dsn: str | None,
    id_: UUID,
    resolution: QuarantineResolution,
    reason: str,
    *,
    as_json: bool,
) -> None:
    """Resolve the rows of an approved proposal; what was resolved before is passed over."""
    plan, task = many.approved(store, id_, resolution)
    result = _resolve(store, dsn, plan["ids"], task, reason, plan=plan)
    many.finish(store, plan)
    _report(result, task, None, None, as_json=as_json)
    if result.refused:
        raise typer.Exit(ExitCode.DEGRADED if result.done else ExitCode.FAILED)


def _resolve(
    store: Quarantine,
    dsn: str | None,
    ids: list[int],
    task: Task,
    reason: str,
    *,
    plan: Row | None,
) -> PutBack:
    result = PutBack([], [], [], [])
    parts = many.resolve(store, dsn or "", ids, task, reason, write_lines=write_lines, plan=plan)
    try:
        with _progress("Resolving", len(ids)) as step:
            for part in parts:
                for rows, more in zip(result, part, strict=True):
                    rows.extend(more)
                step(sum(map(len, part)))
    except CommandError as error:
        raise CommandError(
            f"{error} Before this part, {counted(len(result.done), 'row')} of the filter:"
            f" {DONE[task.resolution][1]}.",
            error.exit_code,
            code=error.code,
        ) from None
    return result


@contextmanager
def _progress(title: str, total: int) -> Iterator[Step]:
    """Yield a function that moves a bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task(title, total=total)
        yield lambda count: bar.advance(shown, count)


def _print_preview(selection: Selection) -> None:
    preview = selection.preview()
    matching = f"{selection.matching:,}{'+' if selection.matching > ROWS_MAX else ''}"
    typer.echo(f"{matching} open rows match, {len(selection.rows):,} taken, the oldest first")
    for each in preview["reasons"]:
        names = ", ".join(map(visible, each["subjects"]))
        about = f" ({names}{', ...' if each['rows'] > len(each['subjects']) else ''})"
        typer.echo(f"  {each['rows']:>6,} {each['reason']}{about if names else ''}")
    typer.echo("of these")
    for fate, count in preview["fates"].items():
        [some, *_] = selection.of(fate)
        typer.echo(f"  {count:>6,} {fate}: {MEANS[fate]}, as row {some.id}")


def _report(
    result: PutBack, task: Task, proposal: Row | None, preview: Row | None, *, as_json: bool
) -> None:
    member, word, _ = DONE[task.resolution]
    short = "" if proposal is None else proposal["id"].hex[:8]
    verb = "holdfast " + task.verb.replace(".", " ")
    approve = f"holdfast proposal approve {short} --reason TEXT"
    apply_ = f"{verb} --proposal {short} --reason TEXT"
    if as_json:
        made = proposal and {
            "id": proposal["id"],
            "rows": proposal["detail"]["rows"],
            "ids": proposal["detail"]["ids"],
            "approve": approve,
            "apply": apply_,
        }
        rest = {"refused": result.refused, "resolved_before": result.before, "proposal": made}
        about = {} if preview is None else {"preview": preview}
        print_json({**about, member: result.done, **rest})
        return
    if result.done or not proposal:
        typer.echo(f"{counted(len(result.done), 'row')} {word}")
    if result.before:
        typer.echo(f"{counted(len(result.before), 'row')} resolved before, and not changed")
    if result.refused:
        typer.echo(f"{counted(len(result.refused), 'row')} refused, and still open")
        for each in result.refused[:SHOWN_MAX]:
            typer.echo(f"  row {each['id']}: {visible(each['detail'])}")
    if proposal is not None:
        typer.echo(
            f"{counted(proposal['detail']['rows'], 'row')} proposed, of which nothing is changed"
            f" yet. A second person approves exactly these with\n  {approve}\nThen apply it"
            f" with\n  {apply_}"
        )
