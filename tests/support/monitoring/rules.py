"""The rules of the alerts (deploy/prometheus/holdfast.yml)."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.monitoring.metric_list import ROOT

RULES = ROOT / "deploy" / "prometheus" / "holdfast.yml"


def all_rules() -> Iterator[dict[str, Any]]:
    """Every rule, in order."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]
