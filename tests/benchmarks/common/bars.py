"""Bar charts: the median of each case, with a line from minimum to maximum."""

from collections.abc import Mapping
from typing import Any

OURS, OTHERS, LOSS = "#1f6f54", "#9aa5b1", "#b3401f"


def bars(
    axes: Any, cases: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], ours: set[str]
) -> None:
    """Draw the cases that were measured, in the order and with the labels of `names`."""
    found = {name: cases[name] for name in names if name in cases}
    values = [case["median"] for case in found.values()]
    errors = [
        [case["median"] - case["min"] for case in found.values()],
        [case["max"] - case["median"] for case in found.values()],
    ]
    colours = [OURS if name in ours else OTHERS for name in found]
    drawn = axes.barh([names[name] for name in found], values, xerr=errors, color=colours)
    axes.bar_label(drawn, [f"{value:,.0f}" for value in values], padding=6)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
