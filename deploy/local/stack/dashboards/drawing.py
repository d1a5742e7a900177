"""Draws panels as SVG: lines, the limit of the alert, units, a legend. Nothing of Grafana."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from holdfast.deploy.local.stack.dashboards.alerts import Condition, alert
from holdfast.deploy.local.stack.dashboards.panels import Panel

WIDTH, HEIGHT = 330, 200
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 30, 62
"""Of the plot within its panel: axis, edge, title, time and legend."""

COLUMNS = 3
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#7f7f7f")
LIMITS = {"page": "#d62728", "ticket": "#e6a100"}
LEGEND_LINES = 3
FAR = 4
"""How far above the values a limit may be to be drawn as a line; above that it is named."""

_STYLE = (
    "text{font:10px sans-serif;fill:#444}.t{font-weight:bold;font-size:11px;fill:#111}"
    ".h{font-weight:bold;font-size:14px;fill:#111}"
    "polyline{fill:none;stroke-width:1.4}.a{stroke:#bbb}.l{stroke-dasharray:5 3;stroke-width:1.4}"
)


@dataclass(frozen=True)
class Curve:
    """A named line: seconds since the beginning, and values. NaN breaks it."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Drawing:
    """A panel with its lines."""

    panel: Panel
    curves: Sequence[Curve]


def page(
    rows: Iterable[tuple[str, Sequence[Drawing]]],
    seconds: float,
    ends: tuple[str, str] | None = None,
) -> str:
    """Return the SVG of a dashboard: each row has a heading and its panels, three in a line.

    `ends` are the words at both ends of the axis of time: by default 0 and the seconds.
    """
    ends = ends or ("0", readable(seconds, "s"))
    y, parts = 4, []
    for title, drawings in rows:
        parts.append(f'<text class="h" x="6" y="{y + 16}">{escape(title)}</text>')
        y += 24
        for number, drawing in enumerate(drawings):
            x, line = number % COLUMNS * WIDTH, number // COLUMNS
            body = _panel(drawing, seconds, ends)
            parts.append(f'<g transform="translate({x} {y + line * HEIGHT})">{body}</g>')
        y += HEIGHT * math.ceil(len(drawings) / COLUMNS)
    width = WIDTH * COLUMNS
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}">'
        f'<style>{_STYLE}</style><rect width="{width}" height="{y}" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def readable(value: float, unit: str) -> str:
    """Return a value with its unit.

    >>> [readable(0.012, "s"), readable(5400, "s"), readable(2e6, "bytes"), readable(3, "reqps")]
    ['12 ms', '1.5 h', '2 MB', '3 /s']
    """
    steps, per = _STEPS.get(unit, (_COUNTS, _PER.get(unit, "")))
    size, name = next(((s, n) for s, n in steps if abs(value) >= s), steps[-1])
    return f"{value / size:.3g}{name}{per}" if value else f"0{per}"


_COUNTS = ((1e6, "M"), (1e3, "k"), (1, ""))
_STEPS = {
    "s": (((86400, " d"), (3600, " h"), (60, " min"), (1, " s"), (1e-3, " ms")), ""),
    "bytes": (((1e9, " GB"), (1e6, " MB"), (1e3, " kB"), (1, " B")), ""),
}
_PER = {"reqps": " /s", "ops": " /s", "rowsps": " /s"}


def _panel(drawing: Drawing, seconds: float, ends: tuple[str, str]) -> str:
    panel = drawing.panel
    limit = panel.limit.limit if panel.limit else None
    values = [value for curve in drawing.curves for _, value in curve.points if _number(value)]
    highest = max([*values, 0.0])
    drawn = limit is not None and (limit <= highest * FAR or (not highest and limit <= 1))
    top = max([highest, limit or 0.0] if drawn else [highest]) * 1.08 or 1.0
    plot_w, plot_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(moment: float, value: float) -> str:
        x = LEFT + moment / seconds * plot_w
        return f"{x:.0f},{TOP + plot_h - max(value, 0) / top * plot_h:.0f}"

    base = TOP + plot_h
    parts = [
        f'<text class="t" x="6" y="16">{escape(panel.title)}</text>',
        f'<path class="a" d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}" fill="none"/>',
        *(
            f'<text x="{LEFT - 4}" y="{y}" text-anchor="end">{readable(value, panel.unit)}</text>'
            for value, y in ((0, base + 3), (top, TOP + 6))
        ),
        f'<text x="{LEFT}" y="{base + 12}">{escape(ends[0])}</text>',
        _right(base + 12, escape(ends[1])),
    ]
    for curve, colour in zip(drawing.curves, COLOURS, strict=False):
        for piece in _pieces(curve):
            points = " ".join(at(*point) for point in piece)
            parts.append(f'<polyline stroke="{colour}" points="{points}"/>')
    if limit is not None and panel.alert:
        colour = LIMITS[alert(panel.alert).severity]
        if drawn:
            line = f"{at(0, limit)} {at(seconds, limit)}"
            parts.append(f'<polyline class="l" stroke="{colour}" points="{line}"/>')
        parts.append(_right(TOP - 2, _fires(panel.limit, panel.unit), colour))
    return "".join([*parts, *_legend(drawing.curves, base + 26)])


def _fires(condition: Condition | None, unit: str) -> str:
    """When the alert fires."""
    if condition is None:
        return ""
    return escape(f"alert {condition.comparison} {readable(condition.limit, unit)}")


def _right(y: int, text: str, colour: str = "#444") -> str:
    style = f'text-anchor="end" style="fill:{colour}"'
    return f'<text x="{WIDTH - RIGHT}" y="{y}" {style}>{text}</text>'


def _number(value: float) -> bool:
    return math.isfinite(value)


def _pieces(curve: Curve) -> list[list[tuple[float, float]]]:
    """The parts of a line between values that are not numbers; flat stretches keep their ends."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for point in curve.points:
        if not _number(point[1]):
            pieces.append([])
            continue
        last = pieces[-1]
        if len(last) > 1 and last[-1][1] == last[-2][1] == point[1]:
            last.pop()
        last.append(point)
    return [piece for piece in pieces if piece]


def _legend(curves: Sequence[Curve], y: int) -> list[str]:
    shown = curves[: LEGEND_LINES * 2]
    parts = []
    for number, (curve, colour) in enumerate(zip(shown, COLOURS, strict=False)):
        x, line = 6 + number % 2 * (WIDTH // 2), y + number // 2 * 13
        name = curve.name if len(curve.name) <= 26 else f"{curve.name[:25]}…"
        parts.append(
            f'<path d="M{x} {line - 3}h10" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{x + 14}" y="{line}">{escape(name)}</text>'
        )
    return parts
