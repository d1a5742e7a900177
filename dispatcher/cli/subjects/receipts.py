"""`holdfast receipts`: compare what was sent with what was applied."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dispatcher.cli.common.receiver_options import dsn_named, time_of
from dispatcher.cli.common.shared import AsJson, Dsn, print_json
from dispatcher.cli.subjects.receipts_shown import show
from dispatcher.operators.config.environment import reference_rule
from dispatcher.operators.receipts.actions import (
    Watch,
    compare_received,
    compare_sent,
    count_receipts,
)
from dispatcher.operators.receipts.inbox import inbox_tables
from dispatcher.operators.receipts.rules import Tally
from dispatcher.operators.receipts.store import Sent, Wanted
from dispatcher.operators.receipts.views import as_rows
from dispatcher.outbound.endpoint import EndpointRow
from sink.contract.exits import CommandError, ExitCode

DAY = timedelta(days=1)


def receipts(
    endpoint: Annotated[str, typer.Option("--endpoint", help="The endpoint's name.")],
    since: Annotated[
        str, typer.Option("--since", help="RFC 3339, or a time before now: 90m, 12h, 7d.")
    ] = "1d",
    until: Annotated[
        str, typer.Option("--until", help="As --since; what is booked from then on is left out.")
    ] = "0s",
    subject: Annotated[
        str | None, typer.Option("--subject", help="Only this subject, letter by letter.")
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option(
            "--receiver", help="The database of the receiver's inbox: a DSN, or env:VAR with one."
        ),
    ] = None,
    schema: Annotated[
        str, typer.Option("--schema", help="With --receiver: the schema of the inbox.")
    ] = "payouts",
    inquiry: Annotated[
        str | None,
        typer.Option(
            "--inquiry", help="Ask the receiver over HTTP: the address that its keys follow."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="Differences shown of each kind.")
    ] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Compare what was sent to an endpoint with what its receiver applied.

    Without --receiver or --inquiry it counts the deliveries that a signed receipt proves. With one
    of them it asks the receiver for each key. Both sides are only read. Exit 4: a difference needs
    a person (missing_there, other_body, other_outcome, other_time, stale_there); 3: nothing was
    tried in that time; 1: the receiver cannot be reached.
    """
    if receiver is not None and inquiry is not None:
        raise _usage("--receiver and --inquiry exclude each other.")
    begin, end = time_of("--since", since, _usage), time_of("--until", until, _usage)
    tally = Tally(limit)
    with Sent.connect(dsn) as store:
        row = store.endpoint(endpoint)
        hashed = receiver is not None or inquiry is not None
        wanted = store.wanted(row.endpoint.id, begin, end, subject, hashed=hashed)
        with _watched(store, wanted) as watch:
            if receiver is not None:
                with inbox_tables(dsn_named(receiver, _usage), schema) as tables:
                    compare_sent(store, tables, wanted, tally, watch)
                    compare_received(store, tables, wanted, tally, watch)
            elif inquiry is not None:
                _inquire(store, row, inquiry, wanted, tally, watch)
            else:
                count_receipts(store, wanted, tally, watch)
    if tally.empty:
        raise CommandError(
            f"nothing was tried at {endpoint} in that time. Nothing was compared; name another time"
            " with --since and --until.",
            ExitCode.NOTHING_MATCHED,
        )
    side = "database" if receiver is not None else "inquiry" if inquiry is not None else None
    if as_json:
        print_json(as_rows(endpoint, wanted, side, tally))
    else:
        show(endpoint, wanted, side, tally)
    if tally.needs_a_person:
        raise typer.Exit(ExitCode.DEGRADED)


def _inquire(
    store: Sent, row: EndpointRow, url: str, wanted: Wanted, tally: Tally, watch: Watch
) -> None:
    # Not at the top: every `holdfast` command reads this module, and these load an HTTP client.
    from dispatcher.operators.receipts.key_inquiry import Inquirer  # noqa: PLC0415 - see above
    from dispatcher.outbound.inquiry_answer import InquiryError  # noqa: PLC0415 - see above
    from dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - see above

    material = read_material(row, reference_rule())
    if material.fault:
        raise CommandError(
            f"the receiver cannot be asked: {material.fault}. Nothing was compared; --inquiry signs"
            " as the dispatcher does, so run it where the endpoint's secrets are."
        )
    try:
        with Inquirer(url, row, material) as receiver:
            compare_sent(store, receiver, wanted, tally, watch)
    except InquiryError as error:
        raise CommandError(
            f"the receiver cannot be asked: {error}. What was compared so far is no result; nothing"
            " was changed on either side. Check --inquiry, or read its database with --receiver."
        ) from None


@contextmanager
def _watched(store: Sent, wanted: Wanted) -> Iterator[Watch]:
    """Show a bar on a terminal: how far the subjects are through, and how much was compared."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        if not console.is_terminal:
            yield lambda _tally, _place: None
            return
        bar = stack.enter_context(
            Progress(
                TextColumn("Comparing, entries {task.fields[entries]:,}, subjects"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
        )
        total = None if wanted.subject_id is not None else store.last_subject_id()
        task = bar.add_task("", total=total, entries=0)

        def watch(tally: Tally, place: int | None) -> None:
            # No place: the subjects are through, and there is more to look up.
            done = total if place is None else place
            bar.update(task, completed=done, entries=tally.delivered + tally.undelivered)

        yield watch


def _usage(message: str) -> CommandError:
    return CommandError(f"{message} Nothing was compared.", ExitCode.USAGE)
