"""`make bench-dispatch`: measure, print the tables, write the report.

A benchmark is not a test: whatever the figures are, it ends with 0. Ours losing a delivery or an
order has no figure, and ends it with 1.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.dispatcher.outbound.transport.engines import open_transport
from tests.benchmarks.common.machine import git_commit, machine, versions
from tests.benchmarks.dispatch import backlog, endurance, latency, peers_installed, report, rounds
from tests.benchmarks.dispatch.cases import BARE_CLIENT, CASES, ORDERED_PEERS
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.sink.server import Server, server, version

FOLDER = Path(".holdfast/bench")
REPORT = FOLDER / "dispatch.json"


class Bench:
    """The parts, on one server, into one report."""

    def __init__(self, sizes: Sizes, running: Server, wanted: set[str], found: Any) -> None:
        self._sizes = sizes
        self._server = running
        self._wanted = wanted
        self._found = found

    def shuffled(self) -> None:
        """Every case, in the main shape."""
        names = [n for n, case in CASES.items() if not case.doorbell and case.processes == 1]
        self._shape("shuffled", names)

    def processes(self) -> None:
        """Ours with one process and with several."""
        names = ["holdfast", *(n for n, case in CASES.items() if case.processes > 1)]
        self._shape("shuffled", names)

    def burst(self) -> None:
        """Four jobs of a subject in a row: those who keep the order."""
        self._shape("burst", ["holdfast", *ORDERED_PEERS])

    def batch(self) -> None:
        """Thousands of jobs in a transaction: those who keep the order."""
        self._shape("batch", ["holdfast", *ORDERED_PEERS])

    def order(self) -> None:
        """Whether a receiver that takes its time ever has two requests of a subject at once."""
        least, most = map(str, self._sizes.latency_ms)
        names = ["holdfast", *ORDERED_PEERS]
        self._shape("batch", names, "slow", 1, "--latency-ms", least, most)

    def latency(self) -> None:
        """Commit to receiver while idle."""
        names = self._chosen([n for n, case in CASES.items() if case.queues and case.trickles])
        found = latency.measure(names, self._sizes, self._server)
        missing = found.pop("missing").items()
        self._found["missing"] |= {f"{name}_latency": reason for name, reason in missing}
        self._found["latency_ms"] = found

    def memory(self) -> None:
        """The dispatcher's memory."""
        self._found["memory"] = endurance.memory(self._sizes, self._server)

    def backlog(self) -> None:
        """The cost of claim and settlement by waiting entries."""
        self._found["backlog"] = backlog.growth(self._sizes, self._server)

    def snapshot(self) -> None:
        """The same while an old snapshot is held."""
        self._found["snapshot"] = backlog.snapshot(self._sizes, self._server)

    def outage(self) -> None:
        """The drain after an outage."""
        self._found["outage"] = endurance.outage(self._sizes, self._server)

    def _shape(
        self, shape: str, names: list[str], called: str = "", times: int = 0, *options: str
    ) -> None:
        count = self._sizes.order_jobs if called else self._sizes.jobs
        found = rounds.measure(
            {name: CASES[name] for name in self._chosen(names)},
            shape,
            self._sizes,
            self._server,
            count=count,
            rounds=times or self._sizes.rounds,
            options=options,
        )
        for name, runs in found.runs.items():
            known = report.name_of(name, called or shape)
            self._found["cases"][known] = rounds.figures(runs, count)
            self._found["missing"].pop(known, None)
        for name, reason in found.missing.items():
            self._found["missing"][report.name_of(name, called or shape)] = reason

    def _chosen(self, names: list[str]) -> list[str]:
        return [name for name in names if name in self._wanted]


PARTS: dict[str, Callable[[Bench], None]] = {
    "shuffled": Bench.shuffled,
    "processes": Bench.processes,
    "burst": Bench.burst,
    "batch": Bench.batch,
    "order": Bench.order,
    "latency": Bench.latency,
    "memory": Bench.memory,
    "backlog": Bench.backlog,
    "snapshot": Bench.snapshot,
    "outage": Bench.outage,
}
LONG = ("snapshot", "outage")
"""Run when they are asked for."""


def main() -> None:
    """Run what was asked for."""
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given = _options()
    sizes = Sizes.quick() if given.quick else Sizes.full()
    sizes = sizes.changed(given.jobs, given.rounds, given.minutes, given.days)
    only = [part for part in PARTS if part in given.only.split(",")]
    found = _begun(sizes, quick=given.quick)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        server(Path(folder)) as running,
    ):
        found["versions"]["postgres"] = version(running.dsn)
        bench = Bench(sizes, running, set(given.cases.split(",")), found)
        for part in only:
            print(part, flush=True)
            began = time.monotonic()
            load = os.getloadavg()[0]
            PARTS[part](bench)
            took = {"seconds": round(time.monotonic() - began), "load_before": load}
            found["parts"][part] = took
            found["ratios"] = report.ratios(found, default_engine())
            # What there is so far: a later part that fails takes nothing away.
            FOLDER.mkdir(parents=True, exist_ok=True)
            REPORT.write_text(json.dumps(found, indent=2) + "\n")
    _show(found)


def default_engine() -> str:
    """Return the engine that `holdfast dispatch` takes when it is told none."""
    module = type(open_transport()).__module__
    return next(name for name in BARE_CLIENT if name in module)


def _begun(sizes: Sizes, *, quick: bool) -> dict[str, Any]:
    """Return a new report, with the parts of the last one if that measured the very same.

    So a part that takes long can be measured on its own.
    """
    about: dict[str, Any] = {
        "git_commit": git_commit(),
        "quick": quick,
        "sizes": sizes.described(),
        "machine": machine(),
        "versions": versions() | peers_installed.versions(),
    }
    empty: dict[str, Any] = {"cases": {}, "ratios": {}, "missing": {}, "parts": {}}
    if REPORT.exists() and about["git_commit"] and not about["git_commit"].endswith("-dirty"):
        last = json.loads(REPORT.read_text())
        # Through JSON, which has no tuples.
        same = json.loads(json.dumps({key: about[key] for key in ("git_commit", "sizes")}))
        if same.items() <= last.items():
            return {**last, **about, "versions": last["versions"] | about["versions"]}
    return {**empty, **about}


def _show(found: dict[str, Any]) -> None:
    if found["cases"]:
        title = f"Deliveries a second, one process, {found['sizes']['connections']} connections"
        print(report.cases(found["cases"], title))
    tables: dict[str, Callable[[Any], str]] = {
        "latency_ms": report.latency,
        "backlog": report.backlog,
        "snapshot": report.snapshot,
    }
    for part, shown in tables.items():
        if found.get(part):
            print(shown(found[part]))
    print(report.endurance(found))
    for name, ratio in found["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    for name, reason in found["missing"].items():
        print(f"MISSING: {name}: {reason}")
    print(f"\nreport: {REPORT}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dispatch")
    usual = ",".join(part for part in PARTS if part not in LONG)
    parser.add_argument("--only", default=usual, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--cases", default=",".join(CASES), help="of those in the report")
    parser.add_argument("--jobs", type=int, help="deliveries of a run")
    parser.add_argument("--rounds", type=int, help="runs of each case")
    parser.add_argument("--minutes", type=float, help="how long an old snapshot is held")
    parser.add_argument("--days", type=int, default=0, help="stored behind, of latency and shapes")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    return parser.parse_args()


if __name__ == "__main__":
    main()
