"""Rows as plain text, as Markdown, and as a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OURS, OTHERS, LOSS = "#1f6f54", "#9aa5b1", "#b3401f"

Rows = Sequence[Mapping[str, Any]]


def table(title: str, head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Lay out a table; the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join((first, *rest)).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join(("", title, rule, line(head), rule, *map(line, cells), rule))


def markdown(rows: Rows) -> str:
    """Lay out rows as a table in Markdown."""
    head, body = cells(rows)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(value: Any) -> str:
    """Show a figure: three digits at least, a spread as `median (least to most)`."""
    if isinstance(value, Mapping):
        least, most = value["min"], value["max"]
        more = f" ({text(least)} to {text(most)})" if least != most else ""
        return f"{text(value['median'])}{more}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str("-" if value is None else value)


def plot(tables: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw a panel for each table that names what it is compared by."""
    drawn = {title: each for title, each in tables.items() if each["by"] and each["rows"]}
    if not drawn:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = (7 * len(drawn), 5.4)
    figure, panels = plt.subplots(1, len(drawn), figsize=size, layout="constrained", squeeze=False)
    for axes, (title, each) in zip(panels[0], drawn.items(), strict=True):
        axes.set_title(f"{title}: {each['by']}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        values = [row[each["by"]] for row in each["rows"]]
        middle, errors = _errors(values)
        if each["x"]:
            places = [row[each["x"]] for row in each["rows"]]
            axes.errorbar(places, middle, yerr=errors, fmt="o-", color=OURS, capsize=4)
            axes.set_xscale("log")
            axes.set_xticks(places, [text(place) for place in places])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_xlabel(each["x"])
        else:
            names = [str(next(iter(row.values()))) for row in each["rows"]]
            axes.bar_label(axes.barh(names, middle, xerr=errors, color=OTHERS), map(text, middle))
            axes.invert_yaxis()
            axes.margins(x=0.15)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def _errors(values: Sequence[Any]) -> tuple[list[float], list[list[float]]]:
    spreads = [
        v if isinstance(v, Mapping) else dict.fromkeys(("median", "min", "max"), v) for v in values
    ]
    middle = [each["median"] for each in spreads]
    return middle, [
        [each["median"] - each["min"] for each in spreads],
        [each["max"] - each["median"] for each in spreads],
    ]


def cells(rows: Rows, by: str = "") -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells of rows, which may lack some columns.

    Where they are compared `by` a column, that alone has the least and the most.
    """
    head = list(dict.fromkeys(name for row in rows for name in row))

    def cell(name: str, value: Any) -> str:
        is_middle = isinstance(value, Mapping) and by and name != by
        return text(value["median"] if is_middle else value)

    return head, [[cell(name, row.get(name)) for name in head] for row in rows]
