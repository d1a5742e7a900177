"""The histogram of the dispatcher, which counts on the path of each delivery."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily

ATTEMPT_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)

Labels = tuple[str, ...]


class Histogram:
    """Counts of values by bucket, for each set of labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the buckets' upper bounds, ascending; a last bucket is unbounded."""
        self._bounds = bounds
        self._rows: dict[Labels, tuple[list[int], list[float]]] = {}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count a value."""
        row = self._rows.get(labels)
        if row is None:
            row = self._rows[labels] = ([0] * (len(self._bounds) + 1), [0.0])
        counts, total = row
        counts[bisect_left(self._bounds, value)] += 1
        total[0] += value

    def add_to(self, family: HistogramMetricFamily) -> HistogramMetricFamily:
        """Add the counts to a family, cumulative by bucket as Prometheus wants them."""
        for labels, (counts, total) in list(self._rows.items()):
            below, buckets = 0, []
            for bound, count in zip([*map(str, self._bounds), "+Inf"], counts[:], strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(labels, buckets, total[0])
        return family
