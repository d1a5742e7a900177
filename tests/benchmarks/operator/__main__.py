"""`make bench-operator`: measure, print the tables, write the report and the picture.

A benchmark is not a test: whatever the figures are, it ends with 0.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.common.runs import last_line, ratios
from tests.benchmarks.operator import (
    growth,
    plot,
    providers,
    recovery,
    report,
    restore,
    rounds,
    tradeoff,
)
from tests.benchmarks.operator.events import write
from tests.benchmarks.operator.rounds import Case
from tests.benchmarks.operator.sizes import Sizes

FOLDER = Path(".holdfast/bench")


def main() -> None:
    """Run what was asked for."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    sizes = Sizes.quick() if given.quick else Sizes.full()
    sizes = sizes.changed(events=given.events, rounds=given.rounds)
    only = set(given.only.split(","))
    began = time.monotonic()
    found: dict[str, Any] = {
        "cases": {},
        "ratios": {},
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "commits": {},
        "parameters": {**sizes.described(), "only": sorted(only)},
    }
    if given.docs:
        _take_over(found, recovery.PARTS.keys() - only)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for letters, measure in _PARTS.items():
            if wanted := only & set(letters):
                measure(found, sizes, Path(folder), wanted)
                found["commits"] |= dict.fromkeys(wanted, found["git_commit"])
                found["parameters"]["seconds"] = round(time.monotonic() - began)
                _write(found)
    _show(found)
    if given.docs:
        recovery.publish(found)


def _take_over(found: dict[str, Any], letters: Iterable[str]) -> None:
    """Take the parts of the documents that this run does not measure from the last report."""
    for letter in letters:
        last = json.loads((FOLDER / "operator.json").read_text())
        found[recovery.PARTS[letter]] = last[recovery.PARTS[letter]]
        found["commits"][letter] = last["commits"][letter]


def _write(found: dict[str, Any]) -> None:
    """Write what there is so far: a later part that fails takes nothing away."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "operator.json").write_text(json.dumps(found, indent=2) + "\n")
    plot.draw(found, FOLDER / "operator.png")


def _throughput(found: dict[str, Any], sizes: Sizes, folder: Path, wanted: set[str]) -> None:
    warm, small_warm = folder / "warm", folder / "small-warm"
    main_events, small_events = folder / "events", folder / "small"
    cases = {
        "a": {"ours": Case("ours", main_events, warm, sizes.rounds)},
        "b": {"builtin": Case("builtin", main_events, warm, sizes.rounds)},
        "c": {
            "textbook": Case("textbook", small_events, small_warm, sizes.textbook_rounds),
            # On the same small input, so that the comparison can be looked at both ways.
            "ours_small": Case("ours", small_events, small_warm, sizes.textbook_rounds),
        },
    }
    chosen = {name: case for letter in sorted(wanted) for name, case in cases[letter].items()}
    print("throughput: writing event files", flush=True)
    if wanted & {"a", "b"}:
        write(main_events, sizes.events)
        write(warm, sizes.warm)
    if "c" in wanted:
        write(small_events, sizes.textbook)
        write(small_warm, sizes.textbook_warm)
    results = rounds.run_rounds(chosen)
    found["cases"] = {name: rounds.figures(runs) for name, runs in results.items()}
    found["disagreements"] = rounds.disagreements(results)
    found["ratios"] |= ratios(found["cases"], _RATIOS)
    if "ours" in results:
        found["ratios"] |= rounds.closing(results["ours"], sizes.events.merchants)


def _tradeoff(found: dict[str, Any], sizes: Sizes, folder: Path, _wanted: set[str]) -> None:
    print("interval sweep: the job on a real Postgres, killed once an interval", flush=True)
    found["tradeoff"] = tradeoff.measure(folder / "tradeoff", sizes.pace)


def _growth(found: dict[str, Any], sizes: Sizes, folder: Path, _wanted: set[str]) -> None:
    print("state: one window that never closes", flush=True)
    events = folder / "growth"
    write(events, sizes.growth)
    words = ["-m", "tests.benchmarks.operator.growth", str(events), *map(str, sizes.growth_files)]
    points = last_line([sys.executable, *words])
    found["state"] = {
        "points": points,
        "lines": growth.per_million(points),
        "on_paper": growth.ON_PAPER,
    }


def _restore(found: dict[str, Any], sizes: Sizes, folder: Path, _wanted: set[str]) -> None:
    print("restore: the job on a real Postgres, killed by size of its state", flush=True)
    found["restore"] = restore.measure(folder / "restore", sizes.fill)


def _providers(found: dict[str, Any], sizes: Sizes, folder: Path, _wanted: set[str]) -> None:
    print("state store providers: Spark's own operators on the heap and in RocksDB", flush=True)
    events, warm = folder / "provided", folder / "provided-warm"
    write(events, sizes.providers)
    write(warm, sizes.providers_warm)
    found["providers"] = providers.measure(events, warm, folder / "providers")


_PARTS: dict[str, Callable[[dict[str, Any], Sizes, Path, set[str]], None]] = {
    "abc": _throughput,
    "g": _providers,
    "d": _tradeoff,
    "e": _growth,
    "f": _restore,
}

_RATIOS = {
    "vs_builtin": ("ours", "builtin"),
    "vs_textbook": ("ours", "textbook"),
    "vs_textbook_same_input": ("ours_small", "textbook"),
}


def _show(found: dict[str, Any]) -> None:
    if found["cases"]:
        print(report.cases(found["cases"]))
    if "ours" in found["cases"]:
        print(report.batches(found["cases"]["ours"]))
    for name, ratio in found["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    for words in found.get("disagreements", ()):
        print(f"THE CASES DISAGREE: {words}")
    if "tradeoff" in found:
        print(report.tradeoff(found["tradeoff"]))
    if "state" in found:
        print(report.state(found["state"]))
    if "restore" in found:
        print(report.restore(found["restore"]))
    if "providers" in found:
        print(report.providers(found["providers"]))
    print(f"\nreport: {FOLDER / 'operator.json'}  picture: {FOLDER / 'operator.png'}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.operator")
    parser.add_argument("--events", type=int, help="events that (a) and (b) read, in ten files")
    parser.add_argument("--rounds", type=int, help="rounds of (a) and (b)")
    parser.add_argument("--only", default="a,b,c,d,e,f,g", help="for example a,b")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="write d to g to docs/spark/recovery-time.*; the others of them as last reported",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()
