"""Text of strangers on a terminal, and arguments that several commands read alike."""

from datetime import datetime
from typing import Any
from uuid import UUID

from dispatcher.operators.common.text import visible
from sink.contract.canonical import rfc3339
from sink.contract.exits import CommandError, ExitCode

__all__ = ["counted", "moment_of", "plain", "query_id_of", "reason_of", "shortened", "visible"]

BODY_CHARACTERS_MAX = 2_000


def shortened(text: str, most: int = BODY_CHARACTERS_MAX) -> str:
    """Return `visible(text)`, of a long text the beginning."""
    cut = f" ... ({len(text):,} characters; --json shows all)" if len(text) > most else ""
    return visible(text[:most]) + cut


def plain(value: Any) -> str:
    """Return a value for a person; `-` for none."""
    match value:
        case None:
            return "-"
        case datetime():
            return rfc3339(value)
        case _:
            return visible(str(value))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    >>> counted(1, "entry"), counted(2, "entry"), counted(0, "batch"), counted(3, "replay")
    ('1 entry', '2 entries', '0 batches', '3 replays')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("ry"):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}{'es' if noun.endswith('ch') else 's'}"


def query_id_of(text: str | None) -> UUID | None:
    """Read the option --query-id; raises `CommandError` for what is no UUID."""
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise CommandError(
            f"--query-id {text!r} is not a UUID. Nothing was changed; the id stands in the file"
            " `metadata` of the checkpoint, and in `holdfast stream show`.",
            ExitCode.USAGE,
        ) from None


def moment_of(option: str, text: str | None) -> datetime | None:
    """Read an option that is a time with a zone (RFC 3339); raises `CommandError` for no such."""
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


def reason_of(text: str) -> str:
    """Read the option --reason; raises `CommandError` for an empty or a very long one."""
    if not 1 <= len(text.strip()) <= 2000:
        raise CommandError(
            "--reason must be 1 to 2000 characters long. Nothing was changed.", ExitCode.USAGE
        )
    return text.strip()
