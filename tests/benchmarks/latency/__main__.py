"""`make bench-latency`: measure small batches and the way to an action; print, write the report.

A benchmark is not a test: whatever the figures are, it ends with 0.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.latency import fixed, live, report
from tests.benchmarks.latency.sizes import Sizes

REPORT = Path(".holdfast/bench/latency.json")


def _corrections(folder: Path, sizes: Sizes) -> list[dict[str, Any]]:
    points = []
    for rate in sizes.rates:
        points.append(live.corrections(folder / str(rate.events_per_second), sizes, rate))
        told = "  ".join(
            f"{name} {points[-1][f'{name}_s']:.2f} s" for name in ("p50", "p95", "p99")
        )
        print(f"  {rate.events_per_second:>5} a second: {told}", flush=True)
    return points


_Part = Callable[[Path, Sizes], Any]

_PARTS: dict[str, _Part] = {
    "fixed": fixed.measure,
    "corrections": _corrections,
    "closings": live.closings,
}


def main() -> None:
    """Run what was asked for."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    sizes = (Sizes.quick() if given.quick else Sizes.full()).changed(
        given.rounds, given.job.split(), given.rates
    )
    only = set(given.only.split(","))
    found: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "git_commit": git_commit(),
        "parameters": {**sizes.described(), "only": sorted(only)},
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        for part, measure in _PARTS.items():
            if part in only:
                print(part, flush=True)
                found[part] = measure(Path(name) / part, sizes)
                found["machine"]["load_after"] = os.getloadavg()[0]
                REPORT.write_text(json.dumps(found, indent=2) + "\n")
    report.show(found)
    print(f"\nreport: {REPORT}")


def _rates(text: str) -> list[int]:
    return [int(rate) for rate in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.latency")
    parser.add_argument("--only", default=",".join(_PARTS), help="some of %(default)s")
    parser.add_argument("--rounds", type=int, help="rounds of the fixed cost")
    parser.add_argument("--rates", type=_rates, help="events a second of the corrections: 1,100")
    parser.add_argument("--job", default="", help='options of job run: "--trigger-interval 0ms"')
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()
