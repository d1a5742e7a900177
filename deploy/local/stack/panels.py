"""What a dashboard consists of, as Grafana's file says it, and the limits of alerts in it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_ABSENT = re.compile(r"absent\((\w+)\)")
_COMPARED = re.compile(r"(.+) (>|<|==) ([\d.e]+)", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """One side of an alert: it fires where `expression` is `comparison` `limit`."""

    expression: str
    comparison: str
    limit: float


@dataclass(frozen=True)
class Alert:
    """A rule. `conditions` are those that compare with a number; any of them fires it."""

    name: str
    severity: str
    conditions: tuple[Condition, ...]


def alert(name: str) -> Alert:
    """Return the alert of this name. Raises KeyError when there is none."""
    return _alerts()[name]


@cache
def _alerts() -> dict[str, Alert]:
    rules = files("holdfast.deploy").joinpath("prometheus", "holdfast.yml")
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: _read(rule) for group in groups for rule in group["rules"]}


def _read(rule: dict[str, Any]) -> Alert:
    expression = rule["expr"]
    if absent := _ABSENT.fullmatch(expression):
        # A count of nothing is nothing; a panel shows 0 instead.
        counted = Condition(f"count({absent[1]}) or vector(0)", "<", 1)
        return Alert(rule["alert"], rule["labels"]["severity"], (counted,))
    # What follows `and` only narrows the first comparison, which is the one that a panel can show.
    parts = (part.split(" and ")[0] for part in expression.split(" or "))
    matches = (_COMPARED.fullmatch(part.strip()) for part in parts)
    conditions = tuple(Condition(each[1], each[2], float(each[3])) for each in matches if each)
    return Alert(rule["alert"], rule["labels"]["severity"], conditions)


NAMES = ("operators", "job", "outbox")
"""The files of deploy/grafana, in the order of the page."""

_ALERT = re.compile(r" Alert (\w+) \(\w+\)\.$")


@dataclass(frozen=True)
class Query:
    """An expression of PromQL as it stands, and the name of its lines with `{{label}}`."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A graph. `unit` is one of Grafana's; `alert` names the alert whose limit is drawn."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    alert: str | None = None

    @property
    def limit(self) -> Condition | None:
        """The comparison of the alert; None without an alert."""
        return alert(self.alert).conditions[0] if self.alert else None


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A page of Grafana. `name` is that of its file, and its `uid` there."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)


@cache
def dashboards() -> tuple[Dashboard, ...]:
    """Return the dashboards of the files that an installation of Grafana imports."""
    folder = files("holdfast.deploy").joinpath("grafana")
    return tuple(
        _dashboard(name, json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8")))
        for name in NAMES
    )


def _dashboard(name: str, content: Mapping[str, Any]) -> Dashboard:
    rows = tuple(_rows(content["panels"]))
    return Dashboard(name, content["title"], content["description"], rows)


def _rows(panels: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    heads = [number for number, each in enumerate(panels) if each["type"] == "row"]
    for head, end in zip(heads, [*heads[1:], len(panels)], strict=True):
        yield Row(panels[head]["title"], tuple(map(_panel, panels[head + 1 : end])))


def _panel(content: Mapping[str, Any]) -> Panel:
    described = _ALERT.search(content["description"])
    return Panel(
        content["title"],
        _ALERT.sub("", content["description"]),
        content["fieldConfig"]["defaults"]["unit"],
        tuple(Query(each["expr"], each["legendFormat"]) for each in content["targets"]),
        described[1] if described else None,
    )
