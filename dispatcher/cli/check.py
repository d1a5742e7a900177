"""`holdfast check`: prove that the outbox and its deliveries are consistent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.dispatcher.cli.options import (
    AsJson,
    Dsn,
    ReceiverSchema,
    Since,
    Until,
    receiver_dsn,
    required_when,
)
from holdfast.dispatcher.cli.output import display, print_json, visible
from holdfast.dispatcher.operators.check.actions import Watch, compare_receipts, judge_order
from holdfast.dispatcher.operators.check.actions import check as run_check
from holdfast.dispatcher.operators.check.rules import INVARIANT, MEANING, Checked, Violation
from holdfast.dispatcher.operators.check.store import Checks, Range
from holdfast.dispatcher.operators.check.views import as_rows, violated
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.config.environment import reference_rule
from holdfast.dispatcher.operators.receipts.inbox import inbox_tables
from holdfast.dispatcher.operators.receipts.store import ComparedRange, SentEntries
from holdfast.dispatcher.outbound.endpoint import EndpointRow
from holdfast.sink.contract.exits import CommandError, ExitCode

UNCHECKED = "Nothing was checked."


def check(
    since: Since = "1d",
    until: Until = "0s",
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Only checks that concern this endpoint.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", help="Only batches of this stream, and their entries."),
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option(
            "--receiver",
            help="Also compare with the endpoint's receiver: the DSN of its inbox, env:VAR that"
            " holds it, or the URL (http...) that keys are appended to.",
        ),
    ] = None,
    receiver_endpoint: Annotated[
        str | None,
        typer.Option(
            "--receiver-endpoint",
            help="The endpoint whose receiver --receiver is. Default: the only one.",
        ),
    ] = None,
    schema: ReceiverSchema = "payouts",
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            min=1,
            max=10_000,
            help="Maximum number of rows shown for each violated rule.",
        ),
    ] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Prove that the outbox and its deliveries are consistent, as far as the database can tell.

    Read-only, in short transactions; safe to run next to live traffic. Exit code 1: a rule is
    violated; the first rows, their meaning and the remedy are printed. Exit code 3: no batch was
    written and no attempt made in the time range.
    """
    begin = required_when("--since", since, UNCHECKED)
    end = required_when("--until", until, UNCHECKED)
    checked = Checked(limit)
    with Checks.connect(dsn) as store, Checks.connect(dsn) as beside, _progress() as watch:
        range_ = store.range(begin, end, endpoint, stream)
        checked_endpoint = None
        if receiver is not None:
            checked_endpoint = _receiver_endpoint(range_, receiver_endpoint)
        run_check((store, beside), range_, checked, watch)
    if receiver is not None and checked_endpoint is not None:
        with SentEntries.connect(dsn) as side:
            _compare_receiver(side, range_, checked_endpoint, receiver, schema, checked)
    if checked.empty and checked.holds:
        raise CommandError(
            "no batch was written and no attempt made in this time range; lanes and pending work"
            " are consistent. Choose another range with --since and --until.",
            ExitCode.NOTHING_MATCHED,
            code="nothing_matched",
        )
    if as_json:
        print_json(as_rows(range_, checked))
    else:
        _show(range_, checked)
    if not checked.holds:
        raise typer.Exit(ExitCode.FAILED)


def _receiver_endpoint(range_: Range, named: str | None) -> str:
    """Return the endpoint whose receiver is compared: the one named, or the only one."""
    names = [str(each["name"]) for each in range_.endpoints]
    if named is not None and named not in names:
        raise CommandError(
            f"there is no endpoint {named!r} in this check, which has {', '.join(names) or 'none'}."
            " Nothing was checked.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_endpoint",
        )
    if named is None and len(names) != 1:
        raise CommandError(
            "--receiver belongs to one endpoint: name it with --endpoint, or, to check the others"
            f" too, with --receiver-endpoint. {UNCHECKED}",
            ExitCode.USAGE,
            code="missing_parameter",
        )
    return named or names[0]


def _compare_receiver(
    side: SentEntries, range_: Range, endpoint: str, receiver: str, schema: str, checked: Checked
) -> None:
    row = side.endpoint(endpoint)
    compared = side.range_(
        row.endpoint.id, When(range_.since), When(range_.until), None, hashed=True
    )
    if receiver.startswith(("http://", "https://")):
        _compare_by_inquiry(side, row, receiver, compared, checked)
        return
    with inbox_tables(receiver_dsn(receiver, UNCHECKED), schema) as inbox:
        compare_receipts(side, inbox, compared, endpoint, checked)
        judge_order(inbox, compared, endpoint, checked)


def _compare_by_inquiry(
    side: SentEntries, row: EndpointRow, url: str, compared: ComparedRange, checked: Checked
) -> None:
    # Imported here because they load an HTTP client, which most runs of this module do not need.
    from holdfast.dispatcher.operators.receipts.key_inquiry import Inquirer  # noqa: PLC0415 - see above
    from holdfast.dispatcher.outbound.inquiry_answer import InquiryError  # noqa: PLC0415 - see above
    from holdfast.dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - see above

    material = read_material(row, reference_rule())
    if material.fault:
        raise CommandError(
            f"the receiver cannot be queried: {material.fault}. Nothing was changed; an inquiry is"
            " signed like a delivery, so run this where the endpoint's secrets are.",
            code="secret_unavailable",
        )
    try:
        with Inquirer(url, row, material, side.moment(When())) as receiver:
            compare_receipts(side, receiver, compared, row.endpoint.name, checked)
    except InquiryError as error:
        raise CommandError(
            f"the receiver cannot be queried: {error}. The check is incomplete; nothing was changed"
            " on either side. Correct --receiver, or omit it.",
            code="inquiry_failed",
        ) from None


@contextmanager
def _progress() -> Iterator[Watch]:
    """Show progress bars for batches and subjects on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _what, _done, _total: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        TextColumn("{task.description}"), *columns, console=console, transient=True
    ) as bar:
        tasks = {what: bar.add_task(what, total=None) for what in ("batches", "subjects")}

        def watch(what: str, done: int, total: int) -> None:
            bar.update(tasks[what], completed=done, total=total)

        yield watch


_TOTALS = ("batches", "entries", "deliveries", "attempts", "lanes", "dead_letters")

_NOTES = {
    "unknown_outcomes": "receivers may have seen as many duplicates (I10)",
    "lanes_due": "due now",
    "leases_run_out": "a running dispatcher records them as unknown",
    "batches_unrouted": "a running dispatcher routes them",
}


def _show(range_: Range, checked: Checked) -> None:
    about = "".join(
        f", {name} {visible(value)}"
        for name, value in (("endpoint", range_.endpoint), ("stream", range_.stream))
        if value is not None
    )
    typer.echo(f"{display(range_.since)} to {display(range_.until)}{about}")
    if max(range_.entries_since, range_.attempts_since) > range_.since:
        typer.echo(
            "  older partitions are dropped: entries are kept since"
            f" {display(range_.entries_since)}, attempts since {display(range_.attempts_since)}"
        )
    totals = [name for name in _TOTALS if name in checked.counted]
    typer.echo(f"  checked {', '.join(_counted(checked, name) for name in totals)}")
    for name, what in _NOTES.items():
        if checked.counted[name]:
            since = f", since {display(checked.oldest[name])}" if name in checked.oldest else ""
            typer.echo(f"  {_counted(checked, name)}{since}: {what}")
    for name in (each for each in checked.counted if each.startswith("receiver_")):
        typer.echo(f"  {_counted(checked, name)}")
    for rule in violated(checked):
        count = checked.violated[rule]
        typer.echo(f"\n{INVARIANT[rule]} {rule.value} {count}: {MEANING[rule]}")
        for each in checked.kept[rule]:
            typer.echo(_violation_line(each))
    if any(checked.violated[rule] > checked.limit for rule in checked.violated):
        typer.echo(f"\nlimited to {checked.limit} of each rule; more with --limit")
    if checked.holds:
        typer.echo("every rule holds")


def _counted(checked: Checked, name: str) -> str:
    return f"{checked.counted[name]:,} {name.replace('_', ' ')}"


def _violation_line(violation: Violation) -> str:
    """Return a violation as one line, unwrapped so that its key can be searched and copied."""
    words = [violation.key, violation.endpoint]
    if violation.subject is not None:
        words.append(f"{violation.subject} {violation.sequence}")
    if violation.stream is not None:
        words.append(f"{violation.stream} batch {violation.batch_id}")
    named = "  ".join(visible(each) for each in words if each)
    return f"  {named}{': ' if named else ''}{visible(violation.detail)}"
