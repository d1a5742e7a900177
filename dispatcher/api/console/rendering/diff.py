"""A line diff of two bodies: what was written, and what a diverged replay contains. Pure."""

from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

from holdfast.dispatcher.api.console.rendering.filters import pretty

WORK_MAX = 4_000_000
"""Limit for pairs of equal lines times the number of lines, about a tenth of a second. Beyond it,
texts are shown one after the other, because the cost of comparing repeated lines is cubic.
"""


class Line(NamedTuple):
    """A line of one side (`then` or `now`), or of both (empty)."""

    side: str
    text: str


def line_diff(then: str | None, now: str | None) -> list[Line]:
    """Return the diff of two JSON texts; None stands for an absent text.

    >>> [tuple(line) for line in line_diff('{"a": 1}', '{"a": 2}')]
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
