"""`make bench-source`: measure a topic as the job's source, print the tables, write the report.

A benchmark is not a test: whatever the figures are, it ends with 0.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker
from holdfast.deploy.local.kafka.jars import staged
from holdfast.sink.contract.exits import CommandError
from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.common.runs import last_line, ratios, spread
from tests.benchmarks.operator.events import Shape
from tests.benchmarks.operator.rounds import disagreements
from tests.benchmarks.source import lag, partitions, report
from tests.benchmarks.source.cases import CASES, Input
from tests.benchmarks.source.events import write_files, write_topic
from tests.benchmarks.source.sizes import Sizes

FOLDER = Path(".holdfast/bench")


def main() -> None:
    """Run what was asked for."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    sizes = (Sizes.quick() if given.quick else Sizes.full()).changed(given.rounds)
    only = set(given.only.split(","))
    began = time.monotonic()
    found: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "parameters": {**sizes.described(), "only": sorted(only)},
    }
    try:
        staged("connector")
        jars = staged("broker")
    except CommandError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        with Broker(folder / "broker", jars) as broker:
            for part, measure in _PARTS.items():
                if part in only:
                    print(part.replace("_", " "), flush=True)
                    found[part] = measure(folder / part, broker, sizes)
                    found["parameters"]["seconds"] = round(time.monotonic() - began)
                    found["machine"]["load_after"] = os.getloadavg()[0]
                    FOLDER.mkdir(parents=True, exist_ok=True)
                    (FOLDER / "source.json").write_text(json.dumps(found, indent=2) + "\n")
    report.show(found)
    print(f"\nreport: {FOLDER / 'source.json'}")


def _throughput(folder: Path, broker: Broker, sizes: Sizes) -> dict[str, Any]:
    inputs = [
        _written(folder / name, broker, sizes, shape)
        for name, shape in (("warm", sizes.warm), ("events", sizes.events))
    ]
    words = [json.dumps(asdict(each)) for each in inputs]
    runs: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    for number in range(sizes.rounds):
        # In turns, so that a busy minute affects all.
        for case, results in runs.items():
            one = ["-m", "tests.benchmarks.source.one", case, *words]
            results.append(last_line([sys.executable, *one]))
            print(
                f"  round {number + 1}  {case:<16}{results[-1]['rate']:>12,.0f} events/s"
                f"{results[-1]['seconds']:>8.1f} s{results[-1]['cpu_s']:>8.1f} s of processor",
                flush=True,
            )
    figures = {case: _figures(results) for case, results in runs.items()}
    windows = {case: each for case, each in runs.items() if each[0]["answer"]}
    return {
        "cases": figures,
        "ratios": ratios(figures, _RATIOS),
        "disagreements": disagreements(windows),
    }


def _written(folder: Path, broker: Broker, sizes: Sizes, shape: Shape) -> Input:
    """Write the events into files and into a topic."""
    write_files(folder, shape)
    topics.make(broker.admin(), folder.name, sizes.partitions)
    write_topic(broker.bootstrap_servers, folder.name, sizes.partitions, shape)
    return Input(str(folder), broker.bootstrap_servers, folder.name, shape.per_file)


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **spread([run["rate"] for run in runs]),
        "unit": "events/s",
        "rounds": len(runs),
        "events": runs[0]["events"],
        "batches": runs[0]["batches"],
        "cpu_s_per_million": spread([run["cpu_s"] / run["events"] * 1e6 for run in runs]),
    }


_RATIOS = {
    "vs_files": ("topic", "files"),
    "vs_spark_aggregate": ("topic", "spark_aggregate"),
    "vs_spark_noop": ("topic", "spark_noop"),
}


_Part = Callable[[Path, Broker, Sizes], dict[str, Any]]

_PARTS: dict[str, _Part] = {
    "throughput": _throughput,
    "steady": lag.steady,
    "catch_up": lag.catch_up,
    "partitions": partitions.measure,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.source")
    parser.add_argument("--only", default=",".join(_PARTS), help="some of %(default)s")
    parser.add_argument("--rounds", type=int, help="rounds of the throughput")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()
