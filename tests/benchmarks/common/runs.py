"""What is said of several runs, and of one that cannot be made."""

import statistics
from collections.abc import Sequence


class Missing(Exception):
    """A case that cannot be measured here; the message says why."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def percentiles(values: Sequence[float], *wanted: int) -> dict[str, float]:
    """Percentiles by their names, as `p50`; `max` is with them."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {**{f"p{each}": cuts[each - 1] for each in wanted}, "max": max(values)}
