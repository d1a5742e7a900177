"""Every panel of every dashboard on one page, drawn from the stack's own Prometheus.

It stands where Grafana would: no package index has Grafana.
"""

import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from holdfast.deploy.local.stack.panels import (
    Condition,
    Dashboard,
    Panel,
    alert,
    dashboards,
)

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


POINTS = 60
"""Of a curve."""

SECONDS_MAX = 20


@dataclass(frozen=True)
class Line:
    """A series over time: seconds since the epoch, and values."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Source:
    """A Prometheus by its URL. Every method raises `OSError` when it does not answer as one."""

    url: str

    def over(self, expression: str, begin: float, end: float, step: float) -> list[Line]:
        """Evaluate an expression from `begin` to `end`, every `step` seconds."""
        result = self._get("query_range", query=expression, start=begin, end=end, step=step)
        return [
            Line(
                each["metric"],
                tuple((float(moment), float(value)) for moment, value in each["values"]),
            )
            for each in result["result"]
        ]

    def alerts(self) -> list[Mapping[str, Any]]:
        """Return the alerts that fire or are about to, as Prometheus describes them."""
        firing: list[Mapping[str, Any]] = self._get("alerts")["alerts"]
        return firing

    def _get(self, what: str, **parameters: Any) -> Any:
        url = f"{self.url}/api/v1/{what}?{urlencode(parameters)}"
        try:
            with urlopen(url, timeout=SECONDS_MAX) as answer:  # noqa: S310 - a URL of this machine
                return json.load(answer)["data"]
        except (HTTPException, ValueError, LookupError, TypeError) as error:
            raise OSError(f"no answer of a Prometheus: {error!r}") from error


def drawn(
    source: Source,
    dashboard: Dashboard,
    began: float,
    ended: float,
    ends: tuple[str, str] | None = None,
) -> str:
    """Return the SVG of a dashboard from `began` to `ended`, in seconds since the epoch.

    `ends` are the words at both ends of the axis. Raises `OSError` as the source does.
    """
    rows = [
        (row.title, [Drawing(each, curves(source, each, began, ended)) for each in row.panels])
        for row in dashboard.rows
    ]
    return page(rows, ended - began, ends)


def curves(source: Source, panel: Panel, began: float, ended: float) -> list[Curve]:
    """Return the lines of a panel, the highest first; those beyond the colours are left out."""
    step = (ended - began) / POINTS
    lines = [
        Curve(_name(query.legend, line), [(moment - began, value) for moment, value in line.points])
        for query in panel.queries
        for line in source.over(query.expression, began, ended, step)
    ]
    return sorted(lines, key=_height, reverse=True)[: len(COLOURS)]


def _height(curve: Curve) -> float:
    return max((value for _, value in curve.points if math.isfinite(value)), default=0.0)


def _name(legend: str, line: Line) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: line.labels.get(match[1], ""), legend)


REFRESH_SECONDS = 15
SHOWN_SECONDS = 900.0
SHOWN_SECONDS_MIN = 60.0

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast: dashboards</title>
<meta http-equiv="refresh" content="{refresh}">
<style>
body{{font:14px sans-serif;margin:0 auto;max-width:1010px;color:#111}}
nav{{position:sticky;top:0;background:#fff;border-bottom:1px solid #bbb;padding:10px 6px}}
nav a{{display:inline-block;margin-right:18px}}
h1{{font-size:18px;margin:24px 6px 4px}} p{{margin:4px 6px}}
table{{border-collapse:collapse;margin:6px}} td{{border-top:1px solid #ddd;padding:4px 10px 4px 0}}
.panels{{overflow-x:auto}} img{{width:100%;min-width:640px}} td{{overflow-wrap:anywhere}}
.firing{{color:#d62728;font-weight:bold}}
</style></head><body>
<nav>{links} <a href="{prometheus}">Prometheus</a> every {refresh} s</nav>
<h1>Alerts</h1>{alerts}
{dashboards}
</body></html>
"""


@contextmanager
def serving(port: int, prometheus: str) -> Iterator[None]:
    """Serve the page on 127.0.0.1 until the block ends; raises `OSError` for a taken port."""
    pages = _Pages(Source(prometheus), time.time())

    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            kind, body, status = pages.answer(self.path)
            self.send_response(status)
            self.send_header("content-type", f"{kind}; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.send_header("cache-control", "no-store")
            self.send_header(
                "content-security-policy",
                "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'",
            )
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Stay silent."""

    server = _Server(("127.0.0.1", port), Handler)
    # A browser keeps its connection open; the end of the stack does not wait for it.
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="dashboards")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that left; other errors are printed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Pages:
    """What each path answers. `started` is when Prometheus began, in seconds since the epoch."""

    def __init__(self, source: Source, started: float) -> None:
        self._source = source
        self._started = started
        self._dashboards = {f"/{each.name}.svg": each for each in dashboards()}

    def answer(self, path: str) -> tuple[str, bytes, HTTPStatus]:
        """Return type, body and status."""
        try:
            if path == "/":
                return "text/html", self._page().encode(), HTTPStatus.OK
            if dashboard := self._dashboards.get(path):
                now = time.time()
                shown = min(SHOWN_SECONDS, max(now - self._started, SHOWN_SECONDS_MIN))
                ends = (f"{shown / 60:.0f} min ago", "now")
                text = drawn(self._source, dashboard, now - shown, now, ends)
                return "image/svg+xml", text.encode(), HTTPStatus.OK
        except OSError as error:
            message = f"Prometheus does not answer ({error}). Its log is in the stack's folder.\n"
            return "text/plain", message.encode(), HTTPStatus.BAD_GATEWAY
        return "text/plain", b"There is no such page.\n", HTTPStatus.NOT_FOUND

    def _page(self) -> str:
        alerts = [_alert(each) for each in self._source.alerts()]
        shown = "".join(
            f'<h1 id="{each.name}">{escape(each.title)}</h1><p>{escape(each.description)}</p>'
            f'<div class="panels"><img src="/{each.name}.svg"'
            f' alt="The panels of {escape(each.title)}"></div>\n'
            for each in dashboards()
        )
        return _PAGE.format(
            refresh=REFRESH_SECONDS,
            links=" ".join(f'<a href="#{each.name}">{each.name}</a>' for each in dashboards()),
            prometheus=escape(self._source.url),
            alerts=f"<table>{''.join(alerts)}</table>" if alerts else "<p>No alert fires.</p>",
            dashboards=shown,
        )


def _alert(alert: Mapping[str, Any]) -> str:
    """Return the row of an alert; all text of it is escaped."""
    notes = alert["annotations"]
    state = "firing" if alert["state"] == "firing" else "pending"
    cells = (alert["labels"]["alertname"], notes["summary"], notes["run"])
    return (
        f'<tr><td class="{state}">{state}</td>'
        + "".join(f"<td>{escape(str(each))}</td>" for each in cells)
        + "</tr>"
    )
