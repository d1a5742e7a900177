"""`holdfast check`: the invariants that a live database can prove."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dispatcher.cli.common.receiver_options import dsn_named, time_of
from dispatcher.cli.common.shared import AsJson, Dsn, print_json
from dispatcher.cli.database.check_shown import show
from dispatcher.operators.check.actions import Watch, check, compare_receipts, judge_order
from dispatcher.operators.check.rules import Checked
from dispatcher.operators.check.store import Checks, Range
from dispatcher.operators.check.views import as_rows
from dispatcher.operators.config.environment import reference_rule
from dispatcher.operators.receipts.inbox import inbox_tables
from dispatcher.operators.receipts.store import Sent, Wanted
from dispatcher.outbound.endpoint import EndpointRow
from sink.contract.exits import CommandError, ExitCode


def check_command(
    since: Annotated[
        str, typer.Option("--since", help="RFC 3339, or a time before now: 90m, 12h, 7d.")
    ] = "1d",
    until: Annotated[str, typer.Option("--until", help="As --since.")] = "0s",
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Only what concerns this endpoint.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", help="Only batches of this stream, and where their entries are."),
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option(
            "--receiver",
            help="Also ask the endpoint's receiver: its inbox's DSN, env:VAR with one, or the"
            " address (http...) that its keys follow.",
        ),
    ] = None,
    schema: Annotated[
        str, typer.Option("--schema", help="With --receiver: the schema of the inbox.")
    ] = "payouts",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="Rows shown of each violation.")
    ] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Prove that the outbox and its deliveries are consistent, as far as the database can tell.

    Everything is only read, in short pieces; it may run while everything else does. Exit 1: a rule
    is violated, named with its first rows, what it means and what to do; 3: nothing was written or
    tried in that time.
    """
    begin, end = time_of("--since", since, _usage), time_of("--until", until, _usage)
    checked = Checked(limit)
    with Checks.connect(dsn) as store, Checks.connect(dsn) as beside, _watched() as watch:
        range_ = store.range(begin, end, endpoint, stream)
        asked = None if receiver is None else _asked(range_)
        check((store, beside), range_, checked, watch)
    if receiver is not None and asked is not None:
        with Sent.connect(dsn) as side:
            _receive(side, range_, asked, receiver, schema, checked)
    if checked.empty and checked.holds:
        raise CommandError(
            "nothing was written or tried in that time; lanes and what waits hold. Name another"
            " time with --since and --until.",
            ExitCode.NOTHING_MATCHED,
        )
    if as_json:
        print_json(as_rows(range_, checked))
    else:
        show(range_, checked)
    if not checked.holds:
        raise typer.Exit(ExitCode.FAILED)


def _asked(range_: Range) -> str:
    """Return the endpoint whose receiver is asked."""
    names = [str(each["name"]) for each in range_.endpoints]
    if len(names) != 1:
        raise _usage("--receiver is of one endpoint: name it with --endpoint.")
    return names[0]


def _receive(
    side: Sent, range_: Range, endpoint: str, receiver: str, schema: str, checked: Checked
) -> None:
    row = side.endpoint(endpoint)
    wanted = side.wanted(row.endpoint.id, range_.since, range_.until, None, hashed=True)
    if receiver.startswith(("http://", "https://")):
        _inquire(side, row, receiver, wanted, checked)
        return
    with inbox_tables(dsn_named(receiver, _usage), schema) as inbox:
        compare_receipts(side, inbox, wanted, endpoint, checked)
        judge_order(inbox, wanted, endpoint, checked)


def _inquire(side: Sent, row: EndpointRow, url: str, wanted: Wanted, checked: Checked) -> None:
    # Not at the top: every `holdfast` command reads this module, and these load an HTTP client.
    from dispatcher.operators.receipts.key_inquiry import Inquirer  # noqa: PLC0415 - see above
    from dispatcher.outbound.inquiry_answer import InquiryError  # noqa: PLC0415 - see above
    from dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - see above

    material = read_material(row, reference_rule())
    if material.fault:
        raise CommandError(
            f"the receiver cannot be asked: {material.fault}. Nothing was changed; a question is"
            " signed as a delivery is, so run it where the endpoint's secrets are."
        )
    try:
        with Inquirer(url, row, material) as receiver:
            compare_receipts(side, receiver, wanted, row.endpoint.name, checked)
    except InquiryError as error:
        raise CommandError(
            f"the receiver cannot be asked: {error}. What was checked so far is no result; nothing"
            " was changed on either side. Check --receiver, or leave it out."
        ) from None


@contextmanager
def _watched() -> Iterator[Watch]:
    """Show a bar on a terminal: what is walked over, and how far."""
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


def _usage(message: str) -> CommandError:
    return CommandError(f"{message} Nothing was checked.", ExitCode.USAGE)
