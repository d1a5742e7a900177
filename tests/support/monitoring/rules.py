"""The rules of the alerts (deploy/prometheus/holdfast.yml)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
METRICS = ROOT / "docs" / "reference" / "metrics.md"

_ROW = re.compile(r"^\| `(holdfast_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_METRIC = re.compile(r"\bholdfast_\w+|\bup(?={)")
_OF_A_HISTOGRAM = re.compile(r"_(sum|count|bucket)$")
_LABEL = re.compile(r"(\w+)=~?\"|by \(([\w, ]+)\)|\$labels\.(\w+)|{{(\w+)}}")
EVERYWHERE = {"instance", "stream", "le"}
"""Labels that Prometheus adds, that every metric of the job has, and that histograms have."""


def metric_labels() -> dict[str, set[str]]:
    """The labels of each metric, and of the one that Prometheus makes of each scrape."""
    rows = _ROW.findall(METRICS.read_text())
    ours = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows}
    return {**ours, "up": {"job"}}


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return {_OF_A_HISTOGRAM.sub("", name) for name in _METRIC.findall(expression)}


def labels_in(text: str) -> set[str]:
    """The labels that an expression, its annotations or its legend use."""
    return {
        name.strip()
        for match in _LABEL.findall(text)
        for part in match
        for name in part.split(",")
        if name
    }


RULES = ROOT / "deploy" / "prometheus" / "holdfast.yml"


def all_rules() -> Iterator[dict[str, Any]]:
    """Every rule, in order."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


SOONER = {
    "HoldfastDecisionsLate": ("> 300", "> 3"),
    "HoldfastDecisionUndelivered": ("> 900", "> 3"),
    "HoldfastDatabaseAway": ("> 60", "> 10"),
    **dict.fromkeys(
        ("HoldfastJobGone", "HoldfastApiGone", "HoldfastPayoutsGone"), ("> 300", "> 5")
    ),
    "HoldfastJobStuck": ("> 900", "> 5"),
    "HoldfastCheckpointSlow": ("> 60", "> 0.5"),
    "HoldfastStateGrowing": ("> 100e6 and", "> 1e3 and"),
    "HoldfastSnapshotHeld": ("> 100000", "> 50"),
    "HoldfastDeadRows": ("> 5000000", "> 200"),
    "HoldfastApiWaits": ("[1m]", "[3s]"),
}
"""What a test does not wait for, with what it waits for instead."""

_WINDOWS = {
    "HoldfastCheckpointSlow": ("[15m]", "[30s]"),
    "HoldfastStateGrowing": ("[1h]", "[20s]"),
    **dict.fromkeys(
        ("HoldfastJobGone", "HoldfastApiGone", "HoldfastPayoutsGone"), ("[3d:1m]", "[10m:1s]")
    ),
}


def sooner(folder: Path) -> Path:
    """Write the rules so that they fire at once: no `for`, and the limits of `SOONER`."""
    content = yaml.safe_load(RULES.read_text())
    for group in content["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
            for changes in (SOONER, _WINDOWS):
                if rule["alert"] in changes:
                    old, new = changes[rule["alert"]]
                    assert old in rule["expr"], rule
                    rule["expr"] = rule["expr"].replace(old, new)
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump(content))
    return path
