"""Durations and untrusted text, as a person reads them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.sink.contract.canonical import rfc3339

BODY_CHARACTERS_MAX = 2_000

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def span(seconds: float) -> str:
    """Return a duration with the two largest units that it has; below a minute in seconds.

    >>> span(0.0421), span(7.4), span(61), span(7_260), span(90_061)
    ('42 ms', '7.4 s', '1 min 1 s', '2 h 1 min', '1 d 1 h')
    """
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    rest, units = round(seconds), []
    for name, size in (*_UNITS, ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            units.append(f"{count} {name}")
        elif units:
            break
    return " ".join(units[:2])


def since(moment: datetime, at: datetime) -> str:
    """Return how long before `at` `moment` was, as `span`; 0 for one after it."""
    return span((at - moment) / timedelta(seconds=1))


def between(earlier: datetime, later: datetime) -> str:
    """Return the time from one moment to another with its sign, as `span`."""
    seconds = (later - earlier) / timedelta(seconds=1)
    return f"{'-' if seconds < 0 else '+'}{span(abs(seconds))}"


def visible(text: str) -> str:
    """Return `text` with escapes for characters that do not print or that control a terminal.

    >>> visible("m\\x1b[2J\\u202e")
    'm\\\\x1b[2J\\\\u202e'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def shortened(text: str, most: int = BODY_CHARACTERS_MAX) -> str:
    """Return `visible(text)`, cut after `most` characters."""
    cut = f" ... ({len(text):,} characters; --json shows all)" if len(text) > most else ""
    return visible(text[:most]) + cut


def display(value: Any) -> str:
    """Return a value as safe text for a terminal; `-` for None."""
    match value:
        case None:
            return "-"
        case datetime():
            return rfc3339(value)
        case _:
            return visible(str(value))


def needs_text(needs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return what needs a person for a terminal, each with its command."""
    for need in needs:
        yield f"{visible(need['sentence'])}\n    {visible(need['command'])}"
