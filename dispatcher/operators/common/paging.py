"""What lists and comparisons share: all time, and the cursor of the next page."""

import re
from datetime import UTC, datetime

from holdfast.sink.contract.exits import CommandError, ExitCode

ALWAYS = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))
"""Before and after every moment that is stored."""


def cursor_numbers(form: re.Pattern[str], text: str) -> list[int]:
    """Return the numbers of a cursor of this form; raises `CommandError` (usage) for another."""
    match = form.fullmatch(text)
    if match is None:
        raise bad_cursor(text)
    return [int(each) for each in match.groups()]


def bad_cursor(text: str) -> CommandError:
    """Return the error for a text that is not the cursor of a page."""
    return CommandError(
        f"--before {text!r} is not the cursor of a page. Nothing was changed; take `next_before` of"
        " its --json, or its last line.",
        ExitCode.USAGE,
        code="invalid_cursor",
    )
