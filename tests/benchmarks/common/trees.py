"""The tree that is measured: this one, or an older commit that takes turns with it.

These benchmarks run with the product of either tree. A folder of links gives an older commit's
packages their names: before 0.3.0 they were not below `holdfast`, but `sink`, `dispatcher` and so
on, which is also what its own modules and its command are called there.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.sink.contract.exits import ExitCode


class Missing(Exception):
    """A case that cannot be measured here; the message says why."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def percentiles(values: Sequence[float], *ranks: int) -> dict[str, float]:
    """Percentiles by their names, as `p50`; `max` is with them."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {**{f"p{each}": cuts[each - 1] for each in ranks}, "max": max(values)}


GIT = shutil.which("git") or "git"
PACKAGES = ("deploy", "dispatcher", "migrations", "sink", "spark_app")
KIT = "dispatcher/receiver"
ALIASES = '''
"""`holdfast.sink` is `sink`, and so on."""
import importlib, importlib.abc, importlib.util, sys

class Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name.startswith("holdfast.") else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__.removeprefix("holdfast.")
        name = f"dispatcher.{name}" if name.split(".")[0] == "receiver" else name
        sys.modules[module.__name__] = importlib.import_module(name)

sys.meta_path.insert(0, Aliases())
'''


@dataclass(frozen=True)
class Tree:
    """A tree of Holdfast; `names` is the folder of links of an older one."""

    root: Path
    suffix: str = ""
    """Of the names of its cases, as `@d176420`."""
    names: Path | None = None
    is_flat: bool = False
    """Whether its packages are at the top level."""

    def __str__(self) -> str:
        return self.suffix

    @property
    def environment(self) -> dict[str, str]:
        """What lets a Python process import this tree's product, and these benchmarks."""
        if self.names is None:
            return {}
        roots = [str(self.names), *([str(self.root)] if self.is_flat else [])]
        return {"PYTHONPATH": os.pathsep.join(roots)}

    @property
    def folder(self) -> Path:
        """Where a process of this tree begins, so that it imports nothing of another."""
        return self.names or self.root

    def command(self, *words: str) -> list[str]:
        """Return the words that start this tree's `holdfast` command."""
        module = "dispatcher.cli.main" if self.is_flat else "holdfast.dispatcher.cli.main"
        return [sys.executable, "-m", module, *words]

    def call(
        self, function: str, *arguments: Any, environment: Mapping[str, str] | None = None
    ) -> Any:
        """Run `module:function` of the benchmarks in a process of its own; returns its result.

        Arguments and result go through JSON. Raises `Missing` when the function does, and
        RuntimeError with the process's last words when it fails.
        """
        words = [sys.executable, "-m", "tests.benchmarks.common.call", function]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **self.environment, **(environment or {})},
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == ExitCode.NOTHING_MATCHED:
            raise Missing(done.stderr.strip().splitlines()[-1])
        if done.returncode:
            raise RuntimeError(f"{function} ended with {done.returncode}: {done.stderr[-4000:]}")
        return json.loads(done.stdout.splitlines()[-1])


HERE = Tree(Path.cwd())


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Tree]:
    """Check an older commit out into a folder; the repository forgets it at the end."""
    root, names = folder / "tree", folder / "names"
    subprocess.run([GIT, "worktree", "add", "-q", "--detach", root, commit], check=True)
    try:
        is_flat = "from holdfast." not in (root / "dispatcher/cli/main.py").read_text()
        (names / "holdfast").mkdir(parents=True)
        for name in ("tests", ".holdfast"):
            (names / name).symlink_to(Path.cwd() / name)
        if is_flat:
            (names / "holdfast" / "__init__.py").write_text(ALIASES)
        else:
            for name in PACKAGES:
                (names / "holdfast" / name).symlink_to(root / name)
            (names / "holdfast" / "receiver").symlink_to(root / KIT)
        yield Tree(root, f"@{commit[:7]}", names, is_flat)
    finally:
        subprocess.run([GIT, "worktree", "remove", "--force", root], check=True)
