"""What a page asks for: fields of filters, and reading what was given."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dispatcher.api.requests import NAME_CHARACTERS_MAX, YEARS
from sink.contract.exits import CommandError, ExitCode


class Field(NamedTuple):
    """One filter of a list; `choices` make it a selection, beside "any"."""

    name: str
    label: str
    value: str
    hint: str = ""
    choices: Sequence[str] = ()


def given(text: str) -> str | None:
    """Return what a form's field holds; None where it was left empty.

    Raises `CommandError` (usage) for what the database cannot hold, and for more than names have.
    """
    if "\0" in text or len(text) > NAME_CHARACTERS_MAX:
        raise CommandError(
            f"a text has {NAME_CHARACTERS_MAX:,} characters at most and no NUL among them. Nothing"
            " was changed; correct it.",
            ExitCode.USAGE,
        )
    return text if text.strip() else None


def moment(name: str, text: str) -> datetime | None:
    """Read a time with a zone (RFC 3339); raises `CommandError` for anything else."""
    if given(text) is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.year not in YEARS:
        raise CommandError(
            f"{name} is not a time with a zone, such as 2026-11-02T12:15:00Z. Nothing was changed;"
            " correct the filter.",
            ExitCode.USAGE,
        )
    return found.astimezone(UTC)


def whole(name: str, text: str) -> int | None:
    """Read a number from 0 on; raises `CommandError` for anything else."""
    if given(text) is None:
        return None
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) < 19):
        raise CommandError(
            f"{name} is not a whole number. Nothing was changed; correct the filter.",
            ExitCode.USAGE,
        )
    return int(plain)
