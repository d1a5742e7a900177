"""`make bench-quick`: this tree and an older commit in turns, for whoever changes a hot path.

Two processes, one of each, take turns at every case, on one server and with one receiver. A ratio
is of the time of this tree and of the older commit: below 1 is faster.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tests.benchmarks.common.receiver import receiver
from tests.benchmarks.common.runner import Bench, main
from tests.benchmarks.common.server import Server
from tests.benchmarks.common.trees import Tree
from tests.benchmarks.dispatch.jobs import SECRET, SECRET_NAME


@dataclass(frozen=True)
class Sizes:
    """Of a run."""

    rounds: int = 8
    quick: ClassVar = {"rounds": 1}


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
        figures: dict[str, float] = self._answer()
        return figures

    def _answer(self) -> Any:
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise RuntimeError(f"a worker ended with {self._process.wait()}; see its words above")
        return json.loads(line)


def hot_paths(bench: Bench[Sizes]) -> None:
    """Every case that both trees have; the first turn of each imports, connects and plans."""
    url = bench.enter(receiver()).url
    workers = {tree: bench.enter(_worker(tree, bench.server, url)) for tree in bench.trees}
    cases = [
        c for c in workers[bench.trees[0]].cases if all(c in w.cases for w in workers.values())
    ]

    def run(case: str, tree: Tree) -> dict[str, float]:
        return workers[tree].run(case)

    both = bench.with_base({case: partial(run, case) for case in cases})
    by = "processor ms"
    runs = bench.compare("Hot paths", both, bench.size.rounds, warm=1, by=by)
    pairs = bench.against_base(runs)
    bench.ratios(runs, "wall ms", {f"{name}, wall": pair for name, pair in pairs.items()})


@contextmanager
def _worker(tree: Tree, running: Server, url: str) -> Iterator[Worker]:
    """Start the worker of a tree, with databases of its own."""
    with running.fresh(tree) as sink, running.fresh(tree) as dispatch:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.quick.worker", sink, dispatch, url],
            cwd=tree.folder,
            env=os.environ | tree.environment | {SECRET_NAME: SECRET},
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
    main("quick", Sizes, {"hot_paths": hot_paths}, about=__doc__ or "", base="HEAD~1")
