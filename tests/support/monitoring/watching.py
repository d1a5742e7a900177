"""Starts a Prometheus with rules that fire at once, and waits for what they say."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.monitoring.metric_list import ROOT
from tests.support.monitoring.prometheus import Prometheus, scraping
from tests.support.monitoring.rules import sooner
from tests.support.waiting import eventually

SECONDS = 120


@dataclass(frozen=True)
class Watch:
    """A Prometheus that has the rules."""

    prometheus: Prometheus

    def sees(self, expression: str) -> None:
        """Wait until an expression has a sample: an increase from nothing is none."""
        eventually(lambda: self.prometheus.ask(expression), SECONDS)

    def fires(self, name: str, **labels: str) -> dict[str, Any]:
        """Wait until an alert fires, with these labels; returns it. It names a page that exists."""
        sought = {"alertname": name, **labels}
        alerts: list[dict[str, Any]] = []

        def fired() -> bool:
            firing = self.prometheus.firing()
            alerts[:] = [each for each in firing if sought.items() <= each["labels"].items()]
            return bool(alerts)

        eventually(fired, SECONDS)
        page, _, _ = alerts[0]["annotations"]["runbook"].partition("#")
        assert (ROOT / page).is_file()
        return alerts[0]

    def none_fires(self, *names: str) -> None:
        """Check, once all rules were evaluated on what is seen now, that none of these fires."""
        now = time.time()
        eventually(lambda: self.prometheus.evaluated() > now, SECONDS)
        assert self._names().isdisjoint(names)

    def is_quiet(self, name: str) -> None:
        """Wait until this alert does not fire."""
        eventually(lambda: name not in self._names(), SECONDS)

    def _names(self) -> set[str]:
        return {each["labels"]["alertname"] for each in self.prometheus.firing()}


Watcher = Callable[..., Watch]


@contextmanager
def watcher(folder: Path) -> Iterator[Watcher]:
    """Yield what starts a Prometheus on addresses (HOST:PORT)."""
    with ExitStack() as stack:

        def watch(*targets: str) -> Watch:
            rules = sooner(folder)
            server = scraping(folder / "prometheus", list(targets), rules)
            return Watch(stack.enter_context(server))

        yield watch
