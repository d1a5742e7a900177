"""The runner of every benchmark: sizes, rounds in shuffled turns, figures, report and plot.

A suite is its sizes (a dataclass: the defaults are the full ones, `quick` the small ones) and its
parts. A part is a function of a `Bench`; it compares cases, which the runner calls in turns, or
makes a table of points. Figures are medians over the rounds with the least and the most; a ratio is
the median of the ratios of each round, so that a busy minute of the machine affects both sides.

A benchmark is not a test: whatever the figures are, it ends with 0. A case that lost, doubled or
invented something raises, which ends it with 1.
"""

import argparse
import dataclasses
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil

from holdfast.deploy.local.java import find_java, inspect
from tests.benchmarks.common.server import Server, server
from tests.benchmarks.common.tables import cells, plot, table
from tests.benchmarks.common.trees import Missing, Tree, checked_out, spread

_PACKAGES = ("pyspark", "pyarrow", "numpy", "psycopg", "psutil")


def machine() -> dict[str, Any]:
    """Cores, memory and how busy it was before the run began."""
    return {
        "cpus": os.cpu_count(),
        "model": _model(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    runtime = inspect(find_java() / "bin" / "java")
    java = ".".join(map(str, runtime.version)) if runtime else "unknown"
    packages = {name: version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), "java": java, **packages}


def git_commit() -> str:
    """The commit of the working tree, marked when it was changed since."""
    return _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--porcelain") else "")


def _git(*words: str) -> str:
    answer = subprocess.run(
        ["git", *words],  # noqa: S607 - whichever git the reader has
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip()


def _model() -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


FOLDER = Path(".holdfast/bench")

S = TypeVar("S")
Run = Mapping[str, Any]
"""What a case measured in one run: numbers by their column, as `{"rows/s": 98_000.0}`.

What is in it under a name that begins with `_` is kept out of the report."""
Case = Callable[[], Run]


class Bench(Generic[S]):
    """One run of a suite; `found` is its report."""

    def __init__(
        self, name: str, size: S, folder: Path, stack: ExitStack, trees: list[Tree]
    ) -> None:
        self.name, self.size, self.folder, self._stack = name, size, folder, stack
        self.trees = trees
        """This tree, and that of `--base`: cases of ours run with each."""
        self.part = ""
        """The part that runs."""
        self.cases: frozenset[str] | None = None
        """The only cases to run, where the command line names some."""
        self.found: dict[str, Any] = {"tables": {}, "ratios": {}, "missing": {}, "parts": {}}

    def enter(self, context: Any) -> Any:
        """Enter a context that ends with the run of the suite."""
        return self._stack.enter_context(context)

    @cached_property
    def server(self) -> Server:
        """The server of the run, with the settings of the product's embedded one."""
        started: Server = self.enter(server(self.folder))
        return started

    def chosen(self, cases: Iterable[str]) -> list[str]:
        """Return the cases that the command line leaves; one of a base counts as its own."""
        return [n for n in cases if self.cases is None or {n, n.partition("@")[0]} & self.cases]

    def say(self, *words: object) -> None:
        """Print progress."""
        print(" ", *words, flush=True)

    def rounds(
        self, cases: Mapping[str, Case], count: int, warm: int = 0, *, is_quiet: bool = False
    ) -> dict[str, list[Run]]:
        """Run each case once a round, the rounds in shuffled orders; the first `warm` do not count.

        A case that raises `Missing` is left out from then on, and the report says why.
        """
        runs: dict[str, list[Run]] = {}
        left, draw = self.chosen(cases), random.Random(count)  # noqa: S311 - an order
        for number in range(1 - warm, count + 1):
            for name in draw.sample(left, len(left)):
                try:
                    run = cases[name]()
                except Missing as reason:
                    self.missing(name, reason)
                    left.remove(name)
                    continue
                if number > 0:
                    runs.setdefault(name, []).append(run)
                if not is_quiet:
                    self.say(f"round {number}" if number > 0 else "warm-up", shown(name, run))
        return {name: runs[name] for name in cases if name in runs}

    def compare(
        self,
        title: str,
        cases: Mapping[str, Case],
        count: int,
        *,
        by: str,
        x: str = "",
        warm: int = 0,
        ratios: Mapping[str, tuple[str, str]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> dict[str, list[Run]]:
        """Run cases in turns and report their figures, with ratios of pairs of cases `by` one.

        With `x` the cases are points, whose names are whole numbers of it.
        """
        runs, rows = self.rounds(cases, count, warm), []
        for name, each in runs.items():
            about = {"case": name, **({"": labels[name.partition("@")[0]]} if labels else {})}
            rows.append(({x: int(name)} if x else about) | figures(each))
        self.table(title, rows, by=by, x=x)
        self.ratios(runs, by, {**(ratios or {}), **self.against_base(runs)})
        return runs

    def ratios(
        self, runs: Mapping[str, Sequence[Run]], by: str, pairs: Mapping[str, tuple[str, str]]
    ) -> None:
        """Report how the runs of pairs of cases compare, where both were measured."""
        for name, (ours, other) in pairs.items():
            if ours in runs and other in runs:
                both = zip(runs[ours], runs[other], strict=False)
                self.ratio(name, [mine[by] / its[by] for mine, its in both])

    def ratio(self, name: str, values: Sequence[float]) -> None:
        """Report a ratio by its values in each round."""
        self.found["ratios"][name] = spread(values)

    def against_base(self, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the ratios of this tree to the older commit, for cases named `case@commit`."""
        pairs = ((name.partition("@")[0], name) for name in names if "@" in name)
        return {f"{ours} vs {other}, {self.part}": (ours, other) for ours, other in pairs}

    def with_base(self, cases: Mapping[str, Callable[[Tree], Run]]) -> dict[str, Case]:
        """Return cases of ours for this tree, and for that of `--base` as `case@commit`."""
        return {
            f"{name}{tree.suffix}": lambda run=run, tree=tree: run(tree)
            for name, run in cases.items()
            for tree in self.trees
        }

    def table(
        self, title: str, rows: Sequence[Mapping[str, Any]], *, by: str = "", x: str = ""
    ) -> None:
        """Report and print rows. The plot has a bar a row `by` a column, or its line over `x`."""
        kept = [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]
        if not kept:
            return
        self.found["tables"][title] = {"rows": kept, "by": by, "x": x}
        print(table(title, *cells(kept, by)), flush=True)

    def missing(self, name: str, reason: object) -> None:
        """Report that something cannot be measured here."""
        self.found["missing"][name] = str(reason)
        self.say(f"{name}: missing: {reason}")

    def write(self) -> None:
        """Write what there is so far: a later part that fails takes nothing away."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        report_of(self.name).write_text(json.dumps(self.found, indent=1) + "\n")
        plot(self.found["tables"], FOLDER / f"{self.name}.png")


Part = Callable[[Bench[Any]], None]


def report_of(suite: str) -> Path:
    """Return the path of a suite's report."""
    return FOLDER / f"{suite}.json"


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Return median, least and most of each number of the runs."""
    return {
        name: spread([run[name] for run in runs])
        for name, value in runs[0].items()
        if isinstance(value, int | float)
    }


def shown(name: str, run: Run) -> str:
    """Return a line about one run."""
    figures = (
        f"{key} {value:,.4g}" for key, value in run.items() if isinstance(value, int | float)
    )
    return f"{name:<22} {'  '.join(figures)}"


def main(
    suite: str,
    sizes: type[S],
    parts: Mapping[str, Part],
    *,
    about: str,
    long: Sequence[str] = (),
    base: str = "",
) -> Bench[S]:
    """Run what the command line asks for; parts in `long` only when they are named.

    `base` is the older commit where the command line names none; empty: this tree alone.
    """
    # As an exception, so that whatever was started is ended and removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = _options(suite, sizes, parts, about, long)
    base = options.base or base
    changed = {f.name: v for f in _fields(sizes) if (v := getattr(options, f.name)) is not None}
    size = sizes(**{**(sizes.quick if options.quick else {}), **changed})  # type: ignore[attr-defined]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        trees = [Tree(Path.cwd())]
        if base:
            trees.append(stack.enter_context(checked_out(base, folder / "base")))
        bench = Bench(suite, size, folder, stack, trees)
        bench.cases = frozenset(options.cases.split(",")) if options.cases else None
        bench.found |= _begun(suite, size, base)
        for part in options.only.split(","):
            print(part, flush=True)
            began, load = time.monotonic(), os.getloadavg()[0]
            bench.part = part
            parts[part](bench)
            took = round(time.monotonic() - began)
            bench.found["parts"][part] = {"seconds": took, "load_before": load}
            bench.write()
    for name, ratio in bench.found["ratios"].items():
        print(f"{name}: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})")
    for name, reason in bench.found["missing"].items():
        print(f"MISSING: {name}: {reason}")
    load = bench.found["machine"]["load_before"]
    print(f"load before: {load:.1f}, after: {os.getloadavg()[0]:.1f}; report: {report_of(suite)}")
    return bench


def _begun(suite: str, size: Any, base: str) -> dict[str, Any]:
    """Return what the report says of the run, with the parts of the last one if that is the same.

    So a part that takes long can be measured on its own.
    """
    about: dict[str, Any] = {
        "git_commit": git_commit(),
        "base": base,
        # Through JSON, which has no tuples.
        "sizes": json.loads(json.dumps(dataclasses.asdict(size))),
    }
    last = json.loads(report_of(suite).read_text()) if report_of(suite).exists() else {}
    if about.items() <= last.items() and not about["git_commit"].endswith("-dirty"):
        about = last | about
    return about | {"machine": machine(), "versions": versions()}


def _fields(sizes: type[Any]) -> list[Any]:
    """Return the sizes that the command line can change: numbers, texts, and tuples of them."""
    return [
        f for f in dataclasses.fields(sizes) if isinstance(f.default, int | float | str | tuple)
    ]


def _options(
    suite: str, sizes: type[Any], parts: Mapping[str, Part], about: str, long: Sequence[str]
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.{suite}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = ",".join(part for part in parts if part not in long)
    parser.add_argument("--only", default=usual, help=f"parts, of {', '.join(parts)}")
    parser.add_argument("--cases", default="", help="cases, by their names in the report")
    parser.add_argument("--base", default="", metavar="COMMIT", help="in turns with this one")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    for field in _fields(sizes):
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=_parser(field.default), help=f"default {field.default}")
    return parser.parse_args()


def _parser(default: Any) -> Callable[[str], Any]:
    if not isinstance(default, tuple):
        return type(default)
    kind = type(default[0]) if default else str
    return lambda text: tuple(kind(each) for each in text.split(","))
