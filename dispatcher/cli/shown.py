"""Text of strangers on a terminal, and arguments that several commands read alike."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sink.contract.canonical import rfc3339
from sink.contract.exits import CommandError, ExitCode

BODY_CHARACTERS_MAX = 2_000


def visible(text: str) -> str:
    """Return `text` with whatever does not print, or drives a terminal, as an escape.

    >>> visible("m\\x1b[2J\\u202e")
    'm\\\\x1b[2J\\\\u202e'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


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


def reason_of(text: str) -> str:
    """Read the option --reason; raises `CommandError` for an empty or a very long one."""
    if not 1 <= len(text.strip()) <= 2000:
        raise CommandError(
            "--reason must be 1 to 2000 characters long. Nothing was changed.", ExitCode.USAGE
        )
    return text.strip()
