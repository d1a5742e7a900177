"""Options that several commands share, and the functions that read their values."""

import os
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from sink.contract.canonical import NotCanonical
from sink.contract.exits import CommandError, ExitCode
from sink.contract.key import Key

NUMBER_MAX = 2**63 - 1

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", envvar="HOLDFAST_DSN", help="The database (libpq URI or keywords)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
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
    str | None, typer.Option("--before", help="Only rows created before this time (RFC 3339).")
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
ReceiverSchema = Annotated[
    str, typer.Option("--schema", help="With --receiver: the schema of the inbox.")
]
SinceSpan = Annotated[
    str,
    typer.Option("--since", help="Start: an RFC 3339 time, or a span before now (90m, 12h, 7d)."),
]
UntilSpan = Annotated[str, typer.Option("--until", help="End, exclusive; same formats as --since.")]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def key_of(text: str) -> Key:
    """Parse a key; raises `CommandError` (usage) for any other text."""
    try:
        return Key.parse(text)
    except NotCanonical as error:
        raise CommandError(f"{error}. Nothing was changed.", ExitCode.USAGE) from None


def query_id_of(text: str | None) -> UUID | None:
    """Parse --query-id; raises `CommandError` (usage) if it is not a UUID."""
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise CommandError(
            f"--query-id {text!r} is not a UUID. Nothing was changed; the id is in the file"
            " `metadata` of the checkpoint, and in `holdfast stream show`.",
            ExitCode.USAGE,
        ) from None


def moment_of(option: str, text: str | None) -> datetime | None:
    """Parse a time with a zone (RFC 3339); raises `CommandError` (usage) for any other text."""
    try:
        moment = datetime.fromisoformat(text) if text is not None else None
    except ValueError:
        moment = None
    if text is not None and (moment is None or moment.tzinfo is None):
        raise CommandError(
            f"{option} {text!r} is not a time with a zone, such as 2026-11-02T12:15:00Z. Nothing"
            " was changed.",
            ExitCode.USAGE,
        )
    return moment


def moment_or_span(
    option: str, text: str, usage: Callable[[str], CommandError]
) -> datetime | timedelta:
    """Parse an RFC 3339 time with a zone, or `90m`, `12h`, `7d` as a span before now.

    Raises `usage(message)` for any other text.
    """
    span = re.fullmatch(r"([0-9]{1,6})([smhd])", text, re.ASCII)
    if span:
        return timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise usage(
            f"{option} {text!r} is neither a time with a zone, such as 2026-11-02T12:00:00Z, nor a"
            " span before now, such as 90m, 12h or 7d."
        )
    return moment


def reason_of(text: str) -> str:
    """Return --reason without surrounding space; raises `CommandError` if empty or too long."""
    if not 1 <= len(text.strip()) <= 2000:
        raise CommandError(
            "--reason must be 1 to 2000 characters long. Nothing was changed.", ExitCode.USAGE
        )
    return text.strip()


def receiver_dsn(receiver: str, usage: Callable[[str], CommandError]) -> str:
    """Return the DSN that --receiver is, or that the environment variable it names holds.

    Raises `usage(message)` if that variable is not set.
    """
    if not receiver.startswith("env:"):
        return receiver
    name = receiver.removeprefix("env:")
    found = os.environ.get(name)
    if not found:
        raise usage(f"the environment variable {name}, named by --receiver, is not set.")
    return found


def require_terminal(*, yes: bool) -> None:
    """Raise `CommandError` (usage) where the command would ask but stdin is not a terminal."""
    if not yes and not sys.stdin.isatty():
        raise CommandError(
            "this command asks for confirmation, but standard input is not a terminal. Nothing was"
            " changed; pass --yes to confirm.",
            ExitCode.USAGE,
        )


def confirm(question: str, *, yes: bool) -> None:
    """Return if a person confirms, or passed --yes; raises `CommandError` if not."""
    if not yes and not typer.confirm(question):
        raise CommandError("nothing was sent or changed, because it was not confirmed.")
