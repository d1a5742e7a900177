"""Fields of filters, and parsing of their values."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.dispatcher.api.requests import NAME_CHARACTERS_MAX
from holdfast.dispatcher.operators.common.times import When, exact, when
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.numbers import is_whole


class Field(NamedTuple):
    """A filter of a list. With `choices` it is a drop-down that also has "any"."""

    name: str
    label: str
    value: str
    hint: str = ""
    choices: Sequence[str] = ()


SINCE_HINT, UNTIL_HINT = "2h, yesterday, or 2026-11-02T12:15Z", "now, or a time like the other"


def filled(text: str) -> str | None:
    """Return the value of a field; None if it is blank.

    Raises `CommandError` (usage) for a text with a NUL character or a text longer than any name.
    """
    if "\0" in text or len(text) > NAME_CHARACTERS_MAX:
        raise CommandError(
            f"a text must have at most {NAME_CHARACTERS_MAX:,} characters and no NUL character."
            " Nothing was changed; correct it.",
            ExitCode.USAGE,
            code="invalid_text",
        )
    return text if text.strip() else None


def when_of(name: str, text: str) -> When | None:
    """Parse a time as a person writes it; raises `CommandError` (usage) for any other text."""
    if filled(text) is None:
        return None
    try:
        return when(text)
    except ValueError as error:
        raise _invalid_time(f"{name} {error}") from None


def _invalid_time(message: str) -> CommandError:
    return CommandError(
        f"{message} Nothing was changed; correct it.", ExitCode.USAGE, code="invalid_time"
    )


def exact_time(name: str, text: str) -> datetime | None:
    """Parse a time that is the same whenever the form is posted; raises `CommandError` (usage)."""
    try:
        return None if filled(text) is None else exact(text)
    except ValueError as error:
        raise _invalid_time(f"{name} {error}") from None


def whole_number(name: str, text: str) -> int | None:
    """Parse a number >= 0; raises `CommandError` (usage) for any other text."""
    if filled(text) is None:
        return None
    plain = text.strip()
    if not is_whole(plain):
        raise CommandError(
            f"{name} is not a whole number. Nothing was changed; correct the filter.",
            ExitCode.USAGE,
            code="invalid_value",
        )
    return int(plain)
