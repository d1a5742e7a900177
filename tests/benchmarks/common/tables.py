"""Plain-text tables."""

from collections.abc import Sequence


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table; the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join((first, *rest)).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join(("", title, rule, line(head), rule, *map(line, rows), rule))
