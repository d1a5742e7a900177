"""Options that several commands share, and the functions that read their values."""

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from holdfast.dispatcher.cli.output import set_wide
from holdfast.dispatcher.operators.common.times import FORMS, When, exact, when
from holdfast.dispatcher.operators.overview.rules import UNDELIVERED_MINUTES_MAX
from holdfast.sink.contract.exits import CommandError, ExitCode

NUMBER_MAX = 2**63 - 1

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Wide = Annotated[
    bool,
    typer.Option("--wide", callback=set_wide, help="Show every column, however long the lines."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of rows.")]
BeforeCursor = Annotated[
    str | None,
    typer.Option("--before", help="Only older rows: the cursor printed under the previous page."),
]
BeforeId = Annotated[
    int | None,
    typer.Option("--before", min=1, max=NUMBER_MAX, help="Only rows with an id below this one."),
]
BeforeTime = Annotated[
    str | None, typer.Option("--before", help=f"Only rows created before this time: {FORMS}.")
]
OfEndpoint = Annotated[str | None, typer.Option("--endpoint", help="Only this endpoint.")]
OfSubject = Annotated[str | None, typer.Option("--subject", help="Only this subject.")]
OfStream = Annotated[str | None, typer.Option("--stream", help="Only this stream.")]
QueryId = Annotated[
    str | None,
    typer.Option(
        "--query-id", help="The checkpoint's query id. Default: the one the stream has adopted."
    ),
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The key as receivers get it: hf_...")
]
Keys = Annotated[
    list[str], typer.Argument(metavar="KEY...", help="The keys as receivers get them: hf_...")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", help="The file to write, replaced atomically. Default: standard output."
    ),
]
UndeliveredMinutes = Annotated[
    int,
    typer.Option(
        "--undelivered-minutes",
        envvar="HOLDFAST_UNDELIVERED_MINUTES",
        min=1,
        max=UNDELIVERED_MINUTES_MAX,
        help="Minutes after which an undelivered entry needs a person.",
    ),
]
ReceiverSchema = Annotated[
    str, typer.Option("--schema", help="With --receiver: the schema of the inbox.")
]
Since = Annotated[
    str | None, typer.Option("--since", help=f"Only from this time on, in UTC: {FORMS}.")
]
Until = Annotated[
    str | None, typer.Option("--until", help="Only before this time; same formats as --since.")
]


def query_id_of(text: str | None) -> UUID | None:
    """Parse --query-id; raises `CommandError` (usage) if it is not a UUID."""
    return None if text is None else uuid_of("--query-id", text)


def uuid_of(option: str, text: str) -> UUID:
    """Parse an option that is a UUID; raises `CommandError` (usage) if it is not."""
    try:
        return UUID(text)
    except ValueError:
        advice = (
            "; the id is in the file `metadata` of the checkpoint, and in `holdfast stream show`"
            if option == "--query-id"
            else ""
        )
        raise CommandError(
            f"{option} {text!r} is not a UUID. Nothing was changed{advice}.",
            ExitCode.USAGE,
            code="invalid_id",
        ) from None


def when_of(option: str, text: str | None) -> When | None:
    """Parse a time as a person writes it; raises `CommandError` (usage) for any other text."""
    return None if text is None else required_when(option, text)


def required_when(option: str, text: str | None, after: str = "Nothing was changed.") -> When:
    """Parse a time; no text means now. Raises `CommandError` (usage) that ends with `after`."""
    try:
        return When() if text is None else when(text)
    except ValueError as error:
        raise CommandError(
            f"{option} {error} {after}", ExitCode.USAGE, code="invalid_time"
        ) from None


def exact_time_of(option: str, text: str | None) -> datetime | None:
    """Parse a time that no clock decides; raises `CommandError` (usage) for any other text."""
    try:
        return None if text is None else exact(text)
    except ValueError as error:
        raise CommandError(
            f"{option} {error} Nothing was changed.", ExitCode.USAGE, code="invalid_time"
        ) from None


def reason_of(text: str) -> str:
    """Return --reason without surrounding space; raises `CommandError` if empty or too long."""
    if not 1 <= len(text.strip()) <= 2000:
        raise CommandError(
            "--reason must be 1 to 2000 characters long. Nothing was changed.",
            ExitCode.USAGE,
            code="invalid_reason",
        )
    return text.strip()


def receiver_dsn(receiver: str, after: str) -> str:
    """Return the DSN that --receiver is, or that the environment variable it names holds.

    Raises `CommandError` (usage), which ends with `after`, if that variable is not set.
    """
    if not receiver.startswith("env:"):
        return receiver
    name = receiver.removeprefix("env:")
    dsn = os.environ.get(name)
    if not dsn:
        raise CommandError(
            f"the environment variable {name}, named by --receiver, is not set. {after}",
            ExitCode.USAGE,
            code="variable_not_set",
        )
    return dsn


def require_terminal(*, yes: bool) -> None:
    """Raise `CommandError` (usage) where the command would ask but stdin is not a terminal."""
    if not yes and not sys.stdin.isatty():
        raise CommandError(
            "this command asks for confirmation, but standard input is not a terminal. Nothing was"
            " changed; pass --yes to confirm.",
            ExitCode.USAGE,
            code="confirmation_required",
        )


def confirm(question: str, *, yes: bool) -> None:
    """Return if a person confirms, or passed --yes; raises `CommandError` if not."""
    if not yes and not typer.confirm(question):
        raise CommandError(
            "nothing was sent or changed, because it was not confirmed.", code="not_confirmed"
        )
