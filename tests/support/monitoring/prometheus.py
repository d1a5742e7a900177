"""A real Prometheus for tests: its programs, and a server that scrapes every second."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from holdfast.deploy.local.ports import free_port
from holdfast.deploy.local.stack.dashboards import Source
from tests.support.monitoring.rules import ROOT, sooner
from tests.support.waiting import eventually

STAGED = ROOT / ".holdfast" / "prometheus" / "usr" / "bin"
"""Where `make test-prometheus` unpacks Debian's package."""

MISSING = "{} is neither on PATH nor staged: `make test-prometheus` fetches it on Debian"


def program(name: str) -> str | None:
    """The path of `prometheus` or `promtool`; None where it is not there."""
    return shutil.which(name) or shutil.which(name, path=str(STAGED))


@dataclass(frozen=True)
class Sample:
    """A value of a series."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Prometheus(Source):
    """A server that runs."""

    def ask(self, expression: str) -> list[Sample]:
        """Evaluate an expression now."""
        result = self._get("query", query=expression)["result"]
        return [Sample(each["metric"], float(each["value"][1])) for each in result]

    def targets(self) -> dict[str, str]:
        """The health of each scraped address: `up`, `down` or `unknown`."""
        return {
            each["labels"]["instance"]: each["health"]
            for each in self._get("targets")["activeTargets"]
        }

    def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire; one may fire for several sets of labels."""
        return [each for each in self._get("alerts")["alerts"] if each["state"] == "firing"]

    def evaluated(self) -> float:
        """When the rules were evaluated last, all of them: seconds since the epoch."""
        groups = self._get("rules")["groups"]
        moments = [rule["lastEvaluation"] for group in groups for rule in group["rules"]]
        return min(datetime.fromisoformat(moment).timestamp() for moment in moments)

    def _get(self, what: str, **parameters: Any) -> Any:
        answered = httpx.get(f"{self.url}/api/v1/{what}", params=parameters, timeout=30)
        content = answered.json()
        assert content["status"] == "success", f"{parameters}: {json.dumps(content)}"
        return content["data"]


@contextmanager
def scraping(folder: Path, targets: list[str], rules: Path | None = None) -> Iterator[Prometheus]:
    """Run a Prometheus on the targets (HOST:PORT) until the block ends."""
    path = program("prometheus")
    assert path, MISSING.format("prometheus")
    folder.mkdir(exist_ok=True)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": targets}]}],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                path,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stderr=log,
            stdout=log,
        )
    server = Prometheus(f"http://{address}")
    try:
        eventually(lambda: process.poll() is not None or _ready(server.url))
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait(30)


def _ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/-/ready", timeout=5).is_success
    return False


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
