"""What is said of several runs, and of one that cannot be made."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


class Missing(Exception):
    """A case that cannot be measured here; the message says why."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def percentiles(values: Sequence[float], *wanted: int) -> dict[str, float]:
    """Percentiles by their names, as `p50`; `max` is with them."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {**{f"p{each}": cuts[each - 1] for each in wanted}, "max": max(values)}


def ratios(
    cases: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, tuple[str, str]]
) -> dict[str, float]:
    """The medians of pairs of cases divided, where both were measured."""
    return {
        name: cases[ours]["median"] / cases[other]["median"]
        for name, (ours, other) in wanted.items()
        if ours in cases and other in cases
    }
