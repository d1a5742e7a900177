"""The rules of the alerts (deploy/prometheus/holdfast.yml)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.monitoring.metric_list import ROOT

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
