"""Two bodies line by line: what was written then, and what a replay brought. Pure."""

from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

from dispatcher.api.console.rendering.filters import pretty

WORK_MAX = 4_000_000
"""Pairs of equal lines, times the lines: beyond this, which takes a tenth of a second, texts are
shown one after the other. Lines that repeat themselves make comparing them a matter of the cube."""


class Line(NamedTuple):
    """A line of the one (`then`), of the other (`now`), or of both (empty)."""

    side: str
    text: str


def differing(then: str | None, now: str | None) -> list[Line]:
    """Return the lines of two JSON texts, where one is none those of the other.

    >>> [tuple(line) for line in differing('{"a": 1}', '{"a": 2}')]
    [('', '{'), ('then', '  "a": 1'), ('now', '  "a": 2'), ('', '}')]
    """
    before, after = _lines(then), _lines(now)
    if _work(before, after) > WORK_MAX:
        return _all("then", before) + _all("now", after)
    lines: list[Line] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for what, start, end, start_now, end_now in matcher.get_opcodes():
        if what == "equal":
            lines += _all("", before[start:end])
        else:
            lines += _all("then", before[start:end]) + _all("now", after[start_now:end_now])
    return lines


def _work(before: list[str], after: list[str]) -> int:
    there = Counter(after)
    return sum(there[line] for line in before) * (len(before) + len(after))


def _lines(text: str | None) -> list[str]:
    return [] if text is None else pretty(text).split("\n")


def _all(side: str, texts: list[str]) -> list[Line]:
    return [Line(side, text) for text in texts]
