"""Fields of filters, and parsing of their values."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dispatcher.api.requests import NAME_CHARACTERS_MAX, YEARS
from sink.contract.exits import CommandError, ExitCode


class Field(NamedTuple):
    """A filter of a list. With `choices` it is a drop-down that also has "any"."""

    name: str
    label: str
    value: str
    hint: str = ""
    choices: Sequence[str] = ()


def given(text: str) -> str | None:
    """Return the value of a field; None if it is blank.

    Raises `CommandError` (usage) for a text with a NUL character or a text longer than any name.
    """
    if "\0" in text or len(text) > NAME_CHARACTERS_MAX:
        raise CommandError(
            f"a text must have at most {NAME_CHARACTERS_MAX:,} characters and no NUL character."
            " Nothing was changed; correct it.",
            ExitCode.USAGE,
        )
    return text if text.strip() else None


def moment(name: str, text: str) -> datetime | None:
    """Parse a time with a zone (RFC 3339); raises `CommandError` (usage) for any other text."""
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
    """Parse a number >= 0; raises `CommandError` (usage) for any other text."""
    if given(text) is None:
        return None
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) < 19):
        raise CommandError(
            f"{name} is not a whole number. Nothing was changed; correct the filter.",
            ExitCode.USAGE,
        )
    return int(plain)
