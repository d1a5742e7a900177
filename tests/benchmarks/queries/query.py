"""A measured request, and its times."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

BAR_MS = 300.0


@dataclass(frozen=True, slots=True)
class Query:
    """One page, one read or one list."""

    kind: str
    """`console`, `api` or `cli`."""

    shows: str
    """What it is, for the table; a filter and a page are named behind the place."""

    ask: tuple[str, ...]
    """An address, or the words of a command."""

    ends: tuple[int, ...] = (200,)
    """Statuses, or exit codes, that are right."""


@dataclass(slots=True)
class Times:
    """What a query took, in milliseconds, without the first time."""

    took: list[float] = field(default_factory=list)
    process: float | None = None
    """A list as a process of its own, with the start of Python; once."""

    bytes: int = 0

    def shown(self) -> dict[str, Any]:
        """Return the figures of a report."""
        return {
            "median_ms": round(median(self.took), 1),
            "p95_ms": round(quantiles(self.took, n=20, method="inclusive")[-1], 1),
            "rounds": len(self.took),
            "bytes": self.bytes,
            "as_process_ms": self.process and round(self.process, 1),
            "within_bar": median(self.took) < BAR_MS,
        }


def address(path: str, given: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return an address with its parameters."""
    return (f"{path}?{urlencode(given)}" if given else path,)


def timed(queries: Sequence[Query], run: Callable[[Query], int], rounds: int) -> dict[Query, Times]:
    """Take all queries in turns, `rounds` times; `run` returns the bytes of the answer.

    A round before these is not counted.
    """
    found = {each: Times() for each in queries}
    for turn in range(rounds + 1):
        for each, times in found.items():
            began = time.perf_counter()
            times.bytes = run(each)
            if turn:
                times.took.append((time.perf_counter() - began) * 1000)
    return found
