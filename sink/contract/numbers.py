"""Numbers and durations as text: ASCII digits and nothing else; numbers with their nouns. Pure.

`int()` also takes `1_0`, `+5`, spaces and digits of other scripts, and `float()` also `nan`: what a
person mistyped would be another number.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, get_args

WHOLE: Final = re.compile(r"[0-9]{1,18}")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_DURATION = re.compile(r"([0-9]{1,9}) *(ms|[smhd])")

UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each unit of a duration."""


def is_whole(text: str) -> bool:
    """Return whether a text is 1 to 18 ASCII digits.

    >>> is_whole("042"), is_whole("4_2"), is_whole("+4"), is_whole("\\u0664")
    (True, False, False, False)
    """
    return WHOLE.fullmatch(text) is not None


def whole_number(text: str) -> int:
    """Return the number that 1 to 18 digits write; raises `ValueError`."""
    if not is_whole(text):
        raise ValueError(f"{ascii(text)[:40]} is not a whole number")
    return int(text)


def milliseconds(text: str, units: str = "ms s m h") -> int:
    """Return a duration in milliseconds; raises `ValueError` for another form or unit.

    >>> milliseconds("2m"), milliseconds("500ms"), milliseconds("5d", units="s m h d")
    (120000, 500, 432000000)
    """
    match = _DURATION.fullmatch(text.strip(" "))
    if match is None or match[2] not in units.split():
        *most, last = units.split()
        raise ValueError(
            f"{ascii(text)[:40]} is not a duration: expected a number and {', '.join(most)}"
            f" or {last}"
        )
    return int(match[1]) * UNITS[match[2]]


def exact(command: Any, refused: type[Exception]) -> Any:
    """Let the numeric options of a command, and of all commands in it, take these forms alone.

    `command` is one that typer makes, and `refused` its `BadParameter`: this package has no command
    line of its own. Returns the command.
    """
    for parameter in getattr(command, "params", ()):
        form = _form(parameter)
        if form is not None and not isinstance(parameter.process_value, partial):
            checked = partial(_checked, parameter, parameter.process_value, form, refused)
            parameter.process_value = checked
    for each in getattr(command, "commands", {}).values():
        exact(each, refused)
    return command


def _form(parameter: Any) -> re.Pattern[str] | None:
    """Return the form of a numeric parameter; None for another one."""
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None:  # typer before 0.25, on click
        name = str(parameter.type.name).partition(" ")[0]
        return {"integer": _INTEGER, "float": _DECIMAL}.get(name)
    types = (descriptor.annotation, *get_args(descriptor.annotation))
    return _INTEGER if int in types else _DECIMAL if float in types else None


def _checked(
    parameter: Any,
    process: Callable[[Any, Any], Any],
    form: re.Pattern[str],
    refused: Callable[..., Exception],
    context: Any,
    value: Any,
) -> Any:
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, str) and not form.fullmatch(each):
            kind = "integer" if form is _INTEGER else "number"
            raise refused(f"{ascii(each)[:40]} is not a valid {kind}.", context, parameter)
    return process(context, value)


# Retention periods of entries and attempts: `90d`.

DAYS_MAX = 36_500
"""As the database function `days_older_than`."""


def whole_days(text: str) -> int:
    """Return the number of days: `90d` is 90. Raises `ValueError` for anything else.

    At least one, so that the partition of a batch written at midnight stays.
    """
    days = int(text[:-1]) if text.endswith("d") and is_whole(text[:-1]) else 0
    if not 1 <= days <= DAYS_MAX:
        raise ValueError(f"{text!r} is not a number of days: expected 1d to {DAYS_MAX}d")
    return days


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    >>> counted(1, "entry"), counted(2, "entry"), counted(0, "batch"), counted(3_000, "key")
    ('1 entry', '2 entries', '0 batches', '3,000 keys')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("ry"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"
