"""Asks a Prometheus for what a panel shows."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from holdfast.deploy.local.stack.dashboards.drawing import COLOURS, Curve, Drawing, page
from holdfast.deploy.local.stack.dashboards.panels import Dashboard, Panel

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
        found = self._get("query_range", query=expression, start=begin, end=end, step=step)
        return [
            Line(
                each["metric"],
                tuple((float(moment), float(value)) for moment, value in each["values"]),
            )
            for each in found["result"]
        ]

    def alerts(self) -> list[Mapping[str, Any]]:
        """Return the alerts that fire or are about to, as Prometheus describes them."""
        found: list[Mapping[str, Any]] = self._get("alerts")["alerts"]
        return found

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
    found = [
        Curve(_name(query.legend, line), [(moment - began, value) for moment, value in line.points])
        for query in panel.queries
        for line in source.over(query.expression, began, ended, step)
    ]
    return sorted(found, key=_height, reverse=True)[: len(COLOURS)]


def _height(curve: Curve) -> float:
    return max((value for _, value in curve.points if math.isfinite(value)), default=0.0)


def _name(legend: str, line: Line) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: line.labels.get(found[1], ""), legend)
