"""Options of the commands that compare both sides: the receiver's database, a time before now."""

import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta

from sink.contract.exits import CommandError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def dsn_named(receiver: str, usage: Callable[[str], CommandError]) -> str:
    """Return the DSN that --receiver is or names; raises what `usage` makes of the fault."""
    if not receiver.startswith("env:"):
        return receiver
    name = receiver.removeprefix("env:")
    found = os.environ.get(name)
    if not found:
        raise usage(f"the environment variable {name} of --receiver holds no DSN.")
    return found


def time_of(option: str, text: str, usage: Callable[[str], CommandError]) -> datetime | timedelta:
    """Read an RFC 3339 time with a zone, or `90m`, `12h`, `7d` as a time before now.

    Raises what `usage` makes of the fault.
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
            f"{option} {text!r} is not a time with a zone, such as 2026-11-02T12:00:00Z, nor a time"
            " before now, such as 90m, 12h or 7d."
        )
    return moment
