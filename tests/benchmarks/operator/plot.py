"""The plot: throughput on the left, the checkpoint trade-off on the right."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from tests.benchmarks.common.bars import LOSS, OURS, bars

_NAMES = {
    "ours": "this operator",
    "builtin": "built-in: dedup + window sum",
    "textbook": "textbook: state per merchant",
    "ours_small": "this operator,\ntextbook's input",
}


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw what the report has of the two."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8), layout="constrained")
    _throughput(left, report.get("cases", {}))
    _tradeoff(right, report.get("tradeoff"))
    figure.savefig(path, dpi=140)
    plt.close(figure)


def _throughput(axes: Any, cases: dict[str, Any]) -> None:
    axes.set_title("Events a second: median, least and most of the rounds")
    bars(axes, cases, _NAMES, {"ours", "ours_small"})


def _tradeoff(axes: Any, found: dict[str, Any] | None) -> None:
    axes.set_title("Interval: overhead against what a SIGKILL costs")
    if found is None:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        return
    points = found["points"]
    seconds = [point["interval_s"] for point in points]
    share = [100 * point["overhead"] for point in points]
    axes.plot(seconds, share, "o-", color=OURS, label="overhead of batches, %")
    axes.set_xscale("log", base=2)
    axes.set_xticks(seconds, [f"{each:g} s" for each in seconds])
    axes.margins(x=0.15)
    axes.set_ylim(0, 105)
    axes.set_ylabel("overhead, % of the batches' time", color=OURS)
    axes.set_xlabel("interval")
    lost = axes.twinx()
    replayed = [point["replayed_events"] for point in points]
    lost.plot(seconds, replayed, "s--", color=LOSS, label="events replayed")
    for x, y, point in zip(seconds, replayed, points, strict=True):
        lost.annotate(
            f"back in {point['recovery_s']:.1f} s",
            (x, y),
            (0, 8),
            textcoords="offset points",
            ha="center",
            color=LOSS,
        )
    lost.set_ylim(0, max(replayed) * 1.25)
    lost.set_ylabel("events replayed after SIGKILL", color=LOSS)
    for each in (axes, lost):
        each.spines["top"].set_visible(False)
