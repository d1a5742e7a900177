"""The list of metrics (docs/reference/metrics.md), and which of them an expression names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
METRICS = ROOT / "docs" / "reference" / "metrics.md"

_ROW = re.compile(r"^\| `(holdfast_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_METRIC = re.compile(r"\bholdfast_\w+|\bup(?={)")
_OF_A_HISTOGRAM = re.compile(r"_(sum|count|bucket)$")
_LABEL = re.compile(r"(\w+)=~?\"|by \(([\w, ]+)\)|\$labels\.(\w+)|{{(\w+)}}")
EVERYWHERE = {"instance", "stream", "le"}
"""Labels that Prometheus adds, that every metric of the job has, and that histograms have."""


def metric_labels() -> dict[str, set[str]]:
    """The labels of each metric, and of the one that Prometheus makes of each scrape."""
    rows = _ROW.findall(METRICS.read_text())
    ours = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows}
    return {**ours, "up": {"job"}}


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return {_OF_A_HISTOGRAM.sub("", name) for name in _METRIC.findall(expression)}


def labels_in(text: str) -> set[str]:
    """The labels that an expression, its annotations or its legend use."""
    return {
        name.strip()
        for match in _LABEL.findall(text)
        for part in match
        for name in part.split(",")
        if name
    }
