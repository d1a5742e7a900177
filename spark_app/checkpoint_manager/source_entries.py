"""The log in which Spark's file source keeps which files it has read (`sources/I/N`). Pure.

Every tenth entry is a compact one (`9.compact`): it repeats all entries before it, and Spark
removes those that no kept batch needs. An entry that is damaged is made again from a later one.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_NAME = re.compile(r"([0-9]+)(\.compact)?", re.ASCII)


class Entry(NamedTuple):
    """One file that was read."""

    number: int
    """The entry of the log that first had it."""
    line: str


class Name(NamedTuple):
    """The name of an entry's file."""

    number: int
    compact: bool

    @property
    def text(self) -> str:
        return f"{self.number}.compact" if self.compact else str(self.number)


def name(text: str) -> Name | None:
    """Read the name of a file of the log; None for another file."""
    match = _NAME.fullmatch(text)
    return None if match is None else Name(int(match[1]), bool(match[2]))


def entries(text: str) -> list[Entry]:
    """Read an entry; raises ValueError."""
    version, *lines = text.splitlines() or [""]
    if not version.startswith("v"):
        raise ValueError("it is not an entry of a source's log")
    try:
        return [Entry(int(json.loads(line)["batchId"]), line) for line in lines if line]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error} is missing in it") from error


def read_for(position: int, names: Iterable[Name]) -> list[Name]:
    """Return the files that Spark reads to know the log up to an entry, whether they exist or not.

    >>> [one.text for one in read_for(11, [Name(9, True), Name(19, True)])]
    ['9.compact', '10', '11']
    """
    start = max((n.number for n in names if n.compact and n.number <= position), default=-1)
    compact = [] if start < 0 else [Name(start, compact=True)]
    return compact + [Name(number, compact=False) for number in range(start + 1, position + 1)]


def rebuilt(
    position: int, names: Iterable[Name], log: Mapping[Name, str]
) -> dict[Name, str] | None:
    """Return the files to write so that the log ends at an entry; none where all are there.

    `names` are those of all files, and `log` has the text of each readable one. None where the log
    cannot be made.
    """
    wanted = read_for(position, names)
    if all(one in log for one in wanted):
        return {}
    later = [one for one in log if one.compact and one.number > position]
    if not later:
        return None
    version = log[min(later)].partition("\n")[0]
    known = entries(log[min(later)])
    return {
        one: "\n".join(
            [
                version,
                *(
                    each.line
                    for each in known
                    if (each.number <= one.number if one.compact else each.number == one.number)
                ),
            ]
        )
        for one in wanted
        if one not in log
    }


COMPACT_INTERVAL = 10
"""Spark's own default."""


class Log:
    """A log that is continued, with the entries as Spark expects them."""

    def __init__(self, position: int, names: Iterable[Name], texts: Mapping[Name, str]) -> None:
        """`names` are those of all files, up to and after the position, `texts` of readable ones.

        Later texts win where two have the same entry.
        """
        self.known: dict[int, list[str]] = {}
        """The rows of each entry."""
        self._version = next((text.partition("\n")[0] for text in texts.values()), "v1")
        for name in sorted(texts):
            own: dict[int, dict[str, None]] = {}
            for each in entries(texts[name]):
                own.setdefault(each.number, {})[each.line] = None
            self.known |= {number: list(lines) for number, lines in own.items()}
        compact = sorted(name.number for name in names if name.compact)
        self._default = min([COMPACT_INTERVAL, *(number + 1 for number in compact)])
        self._compact = [number for number in compact if number <= position]

    def add(self, number: int, lines: list[str]) -> tuple[Name, str] | None:
        """Add the next entry; return the name and text of its file.

        None where it is a compact one, and an earlier entry is not known.
        """
        self.known[number] = lines
        name = Name(number, compact=not (number + 1) % self._interval())
        if name.compact:
            if any(earlier not in self.known for earlier in range(number)):
                return None
            lines = [line for earlier in range(number + 1) for line in self.known[earlier]]
            self._compact.append(number)
        return name, "\n".join([self._version, *lines])

    def _interval(self) -> int:
        """Return how many entries a compact one ends, as Spark derives it from those there are."""
        match self._compact[-2:]:
            case []:
                return self._default
            case [one]:
                count = one + 1
                if self._default < count / 2:
                    divisors = range(self._default, count // 2 + 1)
                    return next((n for n in divisors if not count % n), count)
                return count
            case [before, last]:
                return last - before
        raise AssertionError("unreachable")
