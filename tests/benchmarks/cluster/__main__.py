"""`make bench-cluster`: measure, print the tables, write the report.

A benchmark is not a test: whatever the figures are, it ends with 0.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.benchmarks.cluster import driver, throughput
from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.common.tables import table

REPORT = Path(".holdfast/bench/cluster.json")
DECISIONS = (100_000, 300_000, 1_000_000)
QUICK_LOAD = throughput.Load(counted=1, per_file=5_000, merchants=500, rounds=1)


def main() -> None:
    """Run what was asked for."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    load = QUICK_LOAD if given.quick else throughput.Load(rounds=given.rounds)
    decisions = (1_000,) if given.quick else DECISIONS
    found: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "parameters": {"load": asdict(load), "decisions": decisions},
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        server = (
            os.environ.get("HOLDFAST_DSN")
            or stack.enter_context(EmbeddedPostgres(folder / "postgres", keep=False)).dsn
        )
        if "driver" in given.only:
            print("driver: one batch with many decisions", flush=True)
            found["driver"] = driver.measure(folder / "driver", server, decisions)
        if "throughput" in given.only:
            print("throughput: the job by where its tasks run", flush=True)
            found["throughput"] = throughput.measure(folder / "throughput", server, load)
        found["machine"]["load_after"] = os.getloadavg()[0]
        REPORT.write_text(json.dumps(found, indent=2) + "\n")
    _show(found)


def _show(found: dict[str, Any]) -> None:
    before, after = (found["machine"][f"load_{when}"] for when in ("before", "after"))
    print(f"\nload of the machine: {before:.1f} before, {after:.1f} after")
    if "throughput" in found:
        print(_cases(found["throughput"]["cases"], found["parameters"]["load"]["rounds"]))
        for name, ratio in found["throughput"]["ratios"].items():
            print(f"{name}: {ratio:.2f}")
    if "driver" in found:
        print(_driver(found["driver"]))
    print(f"\nreport: {REPORT}")


def _cases(found: dict[str, dict[str, Any]], rounds: int) -> str:
    return table(
        f"Events a second over batches with rows; {rounds} rounds",
        ("tasks in", "median", "min", "max", "batch", "processor s per M"),
        [
            (
                name,
                *(f"{case[key]:,.0f}" for key in ("median", "min", "max")),
                f"{case['batch_s']['median']:.2f} s",
                f"{case['cpu_s_per_million']['median']:.1f}",
            )
            for name, case in found.items()
        ],
    )


def _driver(points: list[dict[str, Any]]) -> str:
    return table(
        "The driver by the decisions of one batch, measured once each",
        ("decisions", "batch", "Python MB more", "JVM MB more", "Python KB per decision"),
        [
            (
                f"{point['decisions']:,}",
                f"{point['batch_s']:.1f} s",
                *(f"{point[name] / 1e6:,.0f}" for name in ("python_bytes", "java_bytes")),
                f"{point['python_bytes'] / 1e3 / point['decisions']:.2f}",
            )
            for point in points
        ],
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster")
    parser.add_argument("--only", default="driver,throughput", help="one of driver, throughput")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of throughput")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()
