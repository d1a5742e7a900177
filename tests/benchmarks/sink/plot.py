"""The plot: throughput on the left, cost of a row by stored rows on the right."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from tests.benchmarks.common.bars import OURS, bars
from tests.benchmarks.sink.cases import CASES


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw what the report has of the two."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5.4), layout="constrained")
    left.set_title("Rows a second: median, least and most of the rounds")
    labels = {name: case.label for name, case in CASES.items()}
    bars(left, report["cases"], labels, {n for n, case in CASES.items() if case.letter in "ab"})
    _growth(right, report.get("growth"))
    figure.savefig(path, dpi=140)
    plt.close(figure)


def _growth(axes: Any, points: list[dict[str, Any]] | None) -> None:
    axes.set_title("Microseconds a row by rows already stored")
    if not points:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        return
    stored = [point["stored"] for point in points]
    costs = [point["us_per_row"] for point in points]
    values = [cost["median"] for cost in costs]
    errors = [
        [cost["median"] - cost["min"] for cost in costs],
        [cost["max"] - cost["median"] for cost in costs],
    ]
    axes.errorbar(stored, values, yerr=errors, fmt="o-", color=OURS, capsize=4)
    axes.set_xscale("log")
    axes.set_xticks(stored, [f"{each:,}" for each in stored])
    axes.minorticks_off()
    axes.set_ylim(0, max(cost["max"] for cost in costs) * 1.15)
    axes.set_xlabel("rows stored")
    axes.set_ylabel("microseconds a row")
    axes.spines[["top", "right"]].set_visible(False)
