"""`make bench-quick`: this tree and an older commit in turns, for whoever changes a hot path.

Two processes, one of each, take turns at every case, on one server and with one receiver. The
ratio is of the processor time of this tree and of the older commit: below 1 is faster.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from tests.benchmarks.common.machine import git_commit, machine
from tests.benchmarks.common.tables import table
from tests.benchmarks.dispatch.jobs import SECRET, SECRET_NAME
from tests.benchmarks.dispatch.programs import receiver
from tests.benchmarks.sink.server import server

REPORT = Path(".holdfast/bench/quick.json")
HERE = Path(__file__).parent
GIT = shutil.which("git") or "git"
MAKE_DATABASE = """
import sys
import psycopg
from psycopg.conninfo import make_conninfo
from holdfast.migrations.upgrade import upgrade
server, name = sys.argv[1:]
with psycopg.connect(server, autocommit=True) as connection:
    connection.execute(f"CREATE DATABASE {name}".encode())
upgrade(make_conninfo(server, dbname=name))
"""


class Worker:
    """A process that runs the cases of one tree."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.cases: list[str] = self._answer()

    def run(self, case: str) -> dict[str, float]:
        """Run a case once."""
        if self._process.stdin is None:
            raise RuntimeError("the worker has no stdin")
        self._process.stdin.write(f"{case}\n")
        self._process.stdin.flush()
        found: dict[str, float] = self._answer()
        return found

    def _answer(self) -> Any:
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise RuntimeError(f"a worker ended with {self._process.wait()}; see its words above")
        return json.loads(line)


def main() -> None:
    """Measure, print the table, write the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.quick")
    parser.add_argument("--base", default="HEAD~1", help="the older commit")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-quick-")))
        base = stack.enter_context(_checked_out(given.base, folder / "base"))
        running = stack.enter_context(server(folder))
        url = stack.enter_context(receiver()).url
        old, new = (
            stack.enter_context(_worker(tree, name, running.dsn, url))
            for name, tree in (("old", base), ("new", Path.cwd()))
        )
        cases = [case for case in new.cases if case in old.cases]
        runs: dict[str, dict[str, list[dict[str, float]]]] = {
            case: {"old": [], "new": []} for case in cases
        }
        # The first turn of each is not counted: it imports, connects and plans.
        for number in range(given.rounds + 1):
            for case in cases:
                pair = (("old", old), ("new", new))
                for name, worker in pair if number % 2 else reversed(pair):
                    found = worker.run(case)
                    if number:
                        runs[case][name].append(found)
    report = {
        "base": given.base,
        "git_commit": git_commit(),
        "machine": machine(),
        "rounds": given.rounds,
        "cases": {case: _compared(found) for case, found in runs.items()},
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(_table(report))
    print(f"\nreport: {REPORT}")


def _compared(found: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    compared: dict[str, float] = {}
    for kind in ("processor", "wall"):
        old, new = ([run[f"{kind}_s"] for run in found[name]] for name in ("old", "new"))
        compared |= {
            f"old_{kind}_s": statistics.median(old),
            f"new_{kind}_s": statistics.median(new),
            f"{kind}_ratio": statistics.median(n / o for o, n in zip(old, new, strict=True)),
        }
    return compared


def _table(report: dict[str, Any]) -> str:
    rows = [
        (
            case,
            f"{found['old_processor_s'] * 1000:,.1f}",
            f"{found['new_processor_s'] * 1000:,.1f}",
            f"{found['processor_ratio']:.2f}",
            f"{found['wall_ratio']:.2f}",
        )
        for case, found in report["cases"].items()
    ]
    head = ("case", f"{report['base']}, ms", "this tree, ms", "processor", "wall")
    return table("Processor time of a run, and ratios new / old", head, rows)


@contextmanager
def _checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """Check a commit out into a folder; the repository forgets it at the end."""
    subprocess.run([GIT, "worktree", "add", "-q", "--detach", folder, commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([GIT, "worktree", "remove", "--force", folder], check=True)


@contextmanager
def _worker(tree: Path, name: str, server_dsn: str, url: str) -> Iterator[Worker]:
    """Start the worker of a tree, with databases of its own."""
    environment = os.environ | {"PYTHONPATH": str(tree), SECRET_NAME: SECRET}
    dsns = []
    for part in ("sink", "dispatch"):
        database = f"quick_{name}_{part}"
        words = [sys.executable, "-c", MAKE_DATABASE, server_dsn, database]
        subprocess.run(words, cwd=tree, env=environment, check=True)
        dsns.append(make_conninfo(server_dsn, dbname=database))
    process = subprocess.Popen(
        [sys.executable, HERE / "worker.py", *dsns, url],
        cwd=tree,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
