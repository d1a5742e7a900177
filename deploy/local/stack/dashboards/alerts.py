"""What the alerts of deploy/prometheus/holdfast.yml compare, so that a panel can show the same."""

import re
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
    found = (_COMPARED.fullmatch(part.strip()) for part in parts)
    conditions = tuple(Condition(each[1], each[2], float(each[3])) for each in found if each)
    return Alert(rule["alert"], rule["labels"]["severity"], conditions)
