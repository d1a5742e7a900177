"""`holdfast receipts`: compare what was sent with what the receiver applied."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.dispatcher.cli.options import (
    AsJson,
    Dsn,
    OfSubject,
    ReceiverSchema,
    Since,
    Until,
    receiver_dsn,
    required_when,
)
from holdfast.dispatcher.cli.output import display, print_json, visible
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.config.environment import reference_rule
from holdfast.dispatcher.operators.receipts.actions import (
    Watch,
    compare_received,
    compare_sent,
    count_receipts,
)
from holdfast.dispatcher.operators.receipts.inbox import inbox_tables
from holdfast.dispatcher.operators.receipts.rules import (
    MEANING,
    Difference,
    Finding,
    SentEntry,
    Tally,
)
from holdfast.dispatcher.operators.receipts.store import ComparedRange, SentEntries
from holdfast.dispatcher.operators.receipts.views import (
    PROOFS,
    as_rows,
    findings_of,
    sequence_of,
    subject_of,
)
from holdfast.dispatcher.outbound.endpoint import EndpointRow
from holdfast.dispatcher.outbound.inquiry_answer import ReceiverRecord
from holdfast.sink.contract.exits import CommandError, ExitCode

UNCOMPARED = "Nothing was compared."


def receipts(
    endpoint: Annotated[str, typer.Option("--endpoint", help="The endpoint's name.")],
    since: Since = "1d",
    until: Until = "0s",
    subject: OfSubject = None,
    receiver: Annotated[
        str | None,
        typer.Option(
            "--receiver", help="The receiver's inbox database: a DSN, or env:VAR that holds one."
        ),
    ] = None,
    schema: ReceiverSchema = "payouts",
    inquiry: Annotated[
        str | None,
        typer.Option(
            "--inquiry", help="Query the receiver over HTTP: the URL that keys are appended to."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=1, max=10_000, help="Maximum number of rows shown for each kind."
        ),
    ] = 20,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Compare what was sent to an endpoint with what its receiver applied.

    Without --receiver or --inquiry, counts the deliveries that a signed receipt proves. With one of
    them, compares each key with the receiver. Read-only on both sides. Exit code 4: a difference
    needs a person (missing_there, other_body, other_outcome, other_time, stale_there); 3: no
    attempt was made in the time range; 1: the receiver cannot be reached.
    """
    if receiver is not None and inquiry is not None:
        raise CommandError(
            f"--receiver and --inquiry exclude each other. {UNCOMPARED}",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    begin = required_when("--since", since, UNCOMPARED)
    end = required_when("--until", until, UNCOMPARED)
    tally = Tally(limit)
    with SentEntries.connect(dsn) as store:
        row = store.endpoint(endpoint)
        hashed = receiver is not None or inquiry is not None
        range_ = store.range_(row.endpoint.id, begin, end, subject, hashed=hashed)
        with _progress(store, range_) as watch:
            if receiver is not None:
                with inbox_tables(receiver_dsn(receiver, UNCOMPARED), schema) as tables:
                    compare_sent(store, tables, range_, tally, watch)
                    compare_received(store, tables, range_, tally, watch)
            elif inquiry is not None:
                _inquire(store, row, inquiry, range_, tally, watch)
            else:
                count_receipts(store, range_, tally, watch)
    if tally.empty:
        raise CommandError(
            f"no attempt was made at {endpoint} in this time range. Nothing was compared; choose"
            " another range with --since and --until.",
            ExitCode.NOTHING_MATCHED,
            code="nothing_matched",
        )
    side = "database" if receiver is not None else "inquiry" if inquiry is not None else None
    if as_json:
        print_json(as_rows(endpoint, range_, side, tally))
    else:
        _show(endpoint, range_, side, tally)
    if tally.needs_a_person:
        raise typer.Exit(ExitCode.DEGRADED)


def _inquire(
    store: SentEntries,
    row: EndpointRow,
    url: str,
    range_: ComparedRange,
    tally: Tally,
    watch: Watch,
) -> None:
    # Imported here because they load an HTTP client, which most runs of this module do not need.
    from holdfast.dispatcher.operators.receipts.key_inquiry import Inquirer  # noqa: PLC0415 - see above
    from holdfast.dispatcher.outbound.inquiry_answer import InquiryError  # noqa: PLC0415 - see above
    from holdfast.dispatcher.outbound.secrets import read_material  # noqa: PLC0415 - see above

    material = read_material(row, reference_rule())
    if material.fault:
        raise CommandError(
            f"the receiver cannot be queried: {material.fault}. Nothing was compared; --inquiry"
            " signs as the dispatcher does, so run it where the endpoint's secrets are.",
            code="secret_unavailable",
        )
    try:
        with Inquirer(url, row, material, store.moment(When())) as receiver:
            compare_sent(store, receiver, range_, tally, watch)
    except InquiryError as error:
        raise CommandError(
            f"the receiver cannot be queried: {error}. The comparison is incomplete; nothing was"
            " changed on either side. Correct --inquiry, or read its database with --receiver.",
            code="inquiry_failed",
        ) from None


@contextmanager
def _progress(store: SentEntries, range_: ComparedRange) -> Iterator[Watch]:
    """Show a progress bar on a terminal: subjects done and entries compared."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        if not console.is_terminal:
            yield lambda _tally, _position: None
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
        total = None if range_.subject_id is not None else store.last_subject_id()
        task = bar.add_task("", total=total, entries=0)

        def watch(tally: Tally, position: int | None) -> None:
            # None: all subjects are done, and the remaining lookups have no position.
            done = total if position is None else position
            bar.update(task, completed=done, entries=tally.delivered + tally.undelivered)

        yield watch


SIDES = {
    None: "stored receipts",
    "database": "the receiver's inbox",
    "inquiry": "the receiver's inquiry answers",
}


def _show(endpoint: str, range_: ComparedRange, side: str | None, tally: Tally) -> None:
    about = "" if range_.subject is None else f", subject {visible(range_.subject)}"
    typer.echo(
        f"{endpoint}{about}, {display(range_.since)} to {display(range_.until)}: {SIDES[side]}"
    )
    receipts = ", ".join(f"{tally.receipts[each]} {each.value}" for each in PROOFS)
    typer.echo(
        f"  delivered {tally.delivered}: receipts {receipts},"
        f" {tally.delivered - tally.receipts.total()} without one"
    )
    typer.echo(f"  tried and not delivered {tally.undelivered}")
    for finding in findings_of(side):
        if tally.findings[finding]:
            typer.echo(f"\n{finding.value} {tally.findings[finding]}: {MEANING[finding]}")
            for each in tally.kept.get(finding, []):
                typer.echo(_line(each))
    if any(tally.findings[each] > tally.limit for each in tally.kept):
        typer.echo(f"\nlimited to {tally.limit} of each kind; more with --limit")


def _line(difference: Difference) -> str:
    """Return a difference as one line, unwrapped so that its key can be searched and copied."""
    hashed = difference.finding is Finding.OTHER_BODY
    return (
        f"  {visible(difference.key or '-')}  {visible(subject_of(difference) or '-')}"
        f" {display(sequence_of(difference))}; here: {_entry_of(difference.entry, hashed=hashed)};"
        f" there: {_record_of(difference.record, hashed=hashed)}"
    )


def _entry_of(entry: SentEntry | None, *, hashed: bool) -> str:
    if entry is None:
        return "nothing"
    proof = entry.proof
    receipt = f", receipt {proof.outcome.value} {visible(proof.applied_at)}" if proof else ""
    return entry.last + receipt + (_hash(entry.body_sha256) if hashed else "")


def _record_of(record: ReceiverRecord | None, *, hashed: bool) -> str:
    if record is None:
        return "nothing"
    words = f"{record.outcome.value} {visible(record.applied_at)}"
    return words + (_hash(record.body_sha256) if hashed else "")


def _hash(body_sha256: bytes | None) -> str:
    return f", body SHA-256 {body_sha256.hex()[:16]}" if body_sha256 else ""
