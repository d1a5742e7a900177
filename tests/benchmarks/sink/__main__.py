"""`make bench-sink`: measure, print the tables, write the report and the picture.

A benchmark is not a test: whatever the figures are, it ends with 0. A case that lost a row has no
figure, and ends it with 1.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.common.runs import last_line, ratios
from tests.benchmarks.sink import growth, memory, plot, report, rounds
from tests.benchmarks.sink.by_hand import DRIVER
from tests.benchmarks.sink.cases import CASES, RATIOS, SAME_ROWS
from tests.benchmarks.sink.server import Server, server, sized, version
from tests.benchmarks.sink.sizes import Sizes
from tests.benchmarks.sink.stopwatch import SERVER_PID

FOLDER = Path(".holdfast/bench")
PARTS = "a,b,c,d,e,growth,memory"


def main() -> None:
    """Run what was asked for."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    sizes = Sizes.quick() if given.quick else Sizes.full()
    sizes = sizes.changed(rows=given.rows, rounds=given.rounds)
    only = set(given.only.split(","))
    began = time.monotonic()
    found: dict[str, Any] = {
        "cases": {},
        "ratios": {},
        "missing": {},
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "parameters": {**sizes.described(), "only": sorted(only)},
    }
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        server(Path(folder)) as running,
    ):
        found["versions"] |= {"postgres": version(running.dsn), "jdbc": DRIVER.rsplit(":", 1)[1]}
        for names, measure in _PARTS.items():
            if wanted := only & set(names):
                measure(found, sizes, running, Path(folder), wanted)
                found["parameters"]["seconds"] = round(time.monotonic() - began)
                _write(found)
    _show(found)


def _write(found: dict[str, Any]) -> None:
    """Write what there is so far: a later part that fails takes nothing away."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "sink.json").write_text(json.dumps(found, indent=2) + "\n")
    plot.draw(found, FOLDER / "sink.png")


def _throughput(
    found: dict[str, Any], sizes: Sizes, running: Server, folder: Path, wanted: set[str]
) -> None:
    print(f"throughput: {sizes.rounds} rounds", flush=True)
    cases = {name: case for name, case in CASES.items() if wanted & {name, case.letter}}
    results = rounds.run_rounds(cases, sizes, running, folder)
    found["cases"] = {name: rounds.figures(runs, sizes.rows) for name, runs in results.runs.items()}
    found["missing"] |= results.missing
    best = [name for name in SAME_ROWS if name in found["cases"]]
    best.sort(key=lambda name: float(found["cases"][name]["median"]))
    wanted_ratios = RATIOS | ({"vs_jdbc_decisions": ("sink", best[-1])} if best else {})
    found["ratios"] = ratios(found["cases"], wanted_ratios)


def _growth(
    found: dict[str, Any], sizes: Sizes, _running: Server, folder: Path, _wanted: set[str]
) -> None:
    settings = sized()
    with server(folder / "sized", settings) as large:
        _grow("growth", found, sizes, large)
        # A server that was given is as it is.
        found["parameters"]["growth_server"] = settings if large.pid else "HOLDFAST_DSN"


def _growth_embedded(
    found: dict[str, Any], sizes: Sizes, running: Server, _folder: Path, _wanted: set[str]
) -> None:
    _grow("growth_embedded", found, sizes, running)


def _grow(name: str, found: dict[str, Any], sizes: Sizes, running: Server) -> None:
    print(f"{name}: filling the tables", flush=True)
    points = found[name] = growth.measure(sizes, running)
    first, *_, last = points
    found["ratios"][name] = last["us_per_row"]["median"] / first["us_per_row"]["median"]


def _memory(
    found: dict[str, Any], sizes: Sizes, running: Server, folder: Path, _wanted: set[str]
) -> None:
    found["memory"] = []
    for rows in sizes.large:
        print(f"memory: {rows:,} entries in one batch", flush=True)
        large = folder / f"large-{rows}"
        memory.prepare_files(large, rows, sizes.subjects)
        for path in ("driver", "staged"):
            words = ["-m", "tests.benchmarks.sink.memory", path, str(large)]
            with fresh(running.dsn) as dsn:
                environment = {"HOLDFAST_DSN": dsn, SERVER_PID: str(running.pid or "")}
                found["memory"].append(last_line([sys.executable, *words], environment))


_PARTS: dict[tuple[str, ...], Callable[[dict[str, Any], Sizes, Server, Path, set[str]], None]] = {
    ("a", "b", "c", "d", "e", *CASES): _throughput,
    ("growth",): _growth,
    ("growth_embedded",): _growth_embedded,
    ("memory",): _memory,
}


def _show(found: dict[str, Any]) -> None:
    if found["cases"]:
        print(report.cases(found["cases"], found["parameters"]))
    for name, ratio in found["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    if "growth" in found:
        print(report.growth(found["growth"], str(found["parameters"]["growth_server"])))
    if "growth_embedded" in found:
        print(report.growth(found["growth_embedded"], "the embedded server"))
    if found.get("memory"):
        print(report.memory(found["memory"]))
    for name, reason in found["missing"].items():
        print(f"MISSING: {name}: {reason}")
    print(f"\nreport: {FOLDER / 'sink.json'}  picture: {FOLDER / 'sink.png'}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sink")
    parser.add_argument("--rows", type=int, help="rows a batch")
    parser.add_argument("--rounds", type=int, help="rounds of the cases and of the growth")
    parser.add_argument("--only", default=PARTS, help="for example a,c,growth, or sink,jdbc")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()
