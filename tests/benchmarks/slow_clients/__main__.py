"""Healthy clients of the API beside slow bodies and wrong tokens, and without them.

    python -m tests.benchmarks.slow_clients [--server DSN] [--slow N] [--seconds S] [--rounds N]

Healthy: programs with a token that read `/api/v1/endpoints` as fast as they are answered, and one
probe of `/healthz/live`. Absent and present take turns in one run, on one server.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.machine import git_commit, machine
from tests.benchmarks.common.tables import table
from tests.benchmarks.queries.server import served
from tests.support.servers.embedded import chosen_server

KINDS = ("none", "bodies", "logins", "tokens")
HEALTHY = 4
"""Programs with a token."""

REPORT = Path(".holdfast/bench/slow_clients.json")


@dataclass(frozen=True)
class Taken:
    """What the healthy clients met in one period."""

    kind: str
    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int
    health_p99_ms: float
    health_refused: int


def main() -> None:
    """Measure each kind in turns, print and write what the healthy clients met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="a server that databases may be made on")
    parser.add_argument("--slow", type=int, default=260)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    before = machine()
    with _server(given.server) as server, fresh(server) as dsn, served(dsn) as serving:
        url = str(serving.program.base_url).removesuffix("/")
        token = serving.program.headers["authorization"]
        found = [
            _period(url, token, kind, given.slow, given.seconds)
            for _ in range(given.rounds)
            for kind in KINDS
        ]
    rows = [asdict(each) for each in found]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    report = {"periods": rows, "slow": given.slow, "machine": before, "commit": git_commit()}
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(_shown(found, given.slow))
    print(f"written to {REPORT}")


@contextmanager
def _server(given: str | None) -> Iterator[str]:
    if given:
        yield given
        return
    with chosen_server() as server:
        yield server.dsn


def _period(url: str, token: str, kind: str, slow: int, seconds: float) -> Taken:
    with _crowd(url, kind, slow), ThreadPoolExecutor(HEALTHY + 1) as threads:
        ends = time.monotonic() + seconds
        ask = [
            threads.submit(_asked, f"{url}/api/v1/endpoints", {"authorization": token}, ends)
            for _ in range(HEALTHY)
        ]
        probe = threads.submit(_asked, f"{url}/healthz/live", {}, ends, 0.1)
        answers = [each for task in ask for each in task.result()]
        health = probe.result()
    good = [ms for ms, fine in answers if fine]
    return Taken(
        kind,
        len(good) / seconds,
        _quantile(good, 50),
        _quantile(good, 99),
        len(answers) - len(good),
        _quantile([ms for ms, _ in health], 99),
        sum(not fine for _, fine in health),
    )


def _asked(
    url: str, headers: dict[str, str], ends: float, pause: float = 0.0
) -> list[tuple[float, bool]]:
    """Ask until then; returns milliseconds, and whether it was a 200, of each."""
    found = []
    with httpx.Client(headers=headers, timeout=10) as client:
        while time.monotonic() < ends:
            began = time.perf_counter()
            try:
                fine = client.get(url).status_code == 200
            except httpx.TransportError:
                fine = False
            found.append(((time.perf_counter() - began) * 1000, fine))
            time.sleep(pause if fine else max(pause, 0.01))
    return found


@contextmanager
def _crowd(url: str, kind: str, count: int) -> Iterator[None]:
    if kind == "none":
        yield
        return
    module = "tests.benchmarks.slow_clients.crowd"
    crowd = subprocess.Popen([sys.executable, "-m", module, url, kind, str(count)])
    try:
        time.sleep(2)  # until all are connected
        yield
    finally:
        crowd.kill()
        crowd.wait()


def _quantile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _shown(found: list[Taken], slow: int) -> str:
    names = {
        "none": "nobody",
        "bodies": f"{slow} bodies, a byte a second, no token",
        "logins": f"{slow} forms of the login, a byte a second",
        "tokens": f"{slow} wrong tokens a second, from the same address",
    }
    rows = []
    for kind in KINDS:
        of = [each for each in found if each.kind == kind]
        middle = {
            name: statistics.median(getattr(each, name) for each in of)
            for name in ("per_second", "p50_ms", "p99_ms", "health_p99_ms")
        }
        refused = sum(each.refused for each in of), sum(each.health_refused for each in of)
        rows.append(
            (
                names[kind],
                *(f"{value:,.1f}" for value in middle.values()),
                f"{refused[0]:,}, {refused[1]:,}",
            )
        )
    head = ("beside", "answers/s", "p50 ms", "p99 ms", "health p99 ms", "refused, health")
    return table("Healthy clients of the API (medians of the periods)", head, tuple(rows))


if __name__ == "__main__":
    main()
