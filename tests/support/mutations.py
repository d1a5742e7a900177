"""The safeties of the code, removed one at a time: a test has to miss each of them.

`tests/mutations/ROOM.toml` has a row for each: what it guarantees, the edit that removes it, and
the tests that should fail without it. `make mutations` runs those tests on copies of this tree,
first as they are and then with each edit.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

from tests.run import prepared
from tests.support.examples import SHARE
from tests.support.servers.databases import PREPARED

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "tests" / "mutations"

NOT_TABLES = {"equivalent", "modules"}
"""Files there that are not tables of safeties."""

PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=short")

MIGRATED = ("migrations/", "sink/contract/")
"""What a database is made of."""

LIMIT_SECONDS = 900
"""For the tests of one mutation, one of which may wait for what no longer happens."""

TESTS_FAILED = 1
"""Exit code of pytest. Others say that the tests were not run: the edit does not even compile."""


@dataclass(frozen=True)
class Edit:
    """A text that stands once in a file, and what takes its place."""

    file: str
    find: str
    replace: str

    def applied(self, text: str) -> str:
        """Return a text with this edit. Raises `ValueError` if it does not stand there once."""
        if text.count(self.find) != 1:
            raise ValueError(f"{self.file} has {text.count(self.find)} times: {self.find!r}")
        return text.replace(self.find, self.replace)


@dataclass(frozen=True)
class Mutation:
    """A safety, the edits that remove it, and the tests that miss it."""

    room: str
    name: str
    safety: str
    guarantee: int
    """Its number in docs/guarantees.md; 0 if it holds none of them."""
    edits: Sequence[Edit]
    tests: Sequence[str]

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with this row: an edit that does not apply, a test that is gone."""
        for edit in self.edits:
            try:
                if edit.applied((ROOT / edit.file).read_text()) == (ROOT / edit.file).read_text():
                    yield f"{self.name} changes nothing in {edit.file}"
            except (OSError, ValueError) as error:
                yield f"{self.name}: {error}"
        for test in self.tests:
            file, _, function = test.partition("::")
            name = function.partition("[")[0].rpartition("::")[2]
            path = ROOT / file
            if not path.exists() or not re.search(rf"def {name}\b", path.read_text()):
                yield f"{self.name}: there is no test {test}"


@dataclass(frozen=True)
class Ran:
    """How the tests of a mutation ended."""

    mutation: Mutation
    code: int
    failed: Sequence[str]
    output: str

    @property
    def is_missed(self) -> bool:
        """Whether a test failed, as it should."""
        return self.code == TESTS_FAILED and bool(self.failed)

    @property
    def is_skipped(self) -> bool:
        """Whether none of its tests ran, as without a program or a jar that they need."""
        return self.code == 0 and not re.search(r"\b\d+ passed\b", self.output)


def load() -> dict[str, Mutation]:
    """Return all mutations by name. Raises `ValueError` for a name that stands twice."""
    found: dict[str, Mutation] = {}
    for path in sorted(TABLES.glob("*.toml")):
        if path.stem in NOT_TABLES:
            continue
        for row in tomllib.loads(path.read_text())["mutation"]:
            mutation = _mutation(path.stem, row)
            if mutation.name in found:
                raise ValueError(f"{mutation.name} stands twice in {TABLES}")
            found[mutation.name] = mutation
    return found


def _mutation(room: str, row: Mapping[str, Any]) -> Mutation:
    edits = row.get("edits") or [{key: row[key] for key in ("file", "find", "replace")}]
    return Mutation(
        room,
        row["name"],
        row["safety"],
        row["guarantee"],
        [Edit(**each) for each in edits],
        row["tests"],
    )


class Copy:
    """A copy of this tree, of which the tests import what they test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = subprocess.run(
            [
                shutil.which("git") or "git",
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).exists():  # not, if it was removed and this was not committed yet
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        for name in (".venv", ".git"):
            (folder / name).symlink_to(ROOT / name)
        subprocess.run(
            [shutil.which("make") or "make", "--silent", "links"], cwd=folder, check=True
        )
        for staged in (ROOT / ".holdfast").iterdir():
            if staged.name != "links":
                (folder / ".holdfast" / staged.name).symlink_to(staged)

    def run(self, tests: Iterable[str], *, migrates: bool = False) -> tuple[int, str]:
        """Run tests, and return pytest's exit code and what it printed.

        Those of an edit to migrations make their database themselves.
        """
        environment = {
            SHARE: "1",
            **{
                name: os.environ[name] for name in os.environ if not (migrates and name == PREPARED)
            },
            # Before the editable install, which finds the original.
            "PYTHONPATH": str(self._folder / ".holdfast" / "links"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            [sys.executable, *PYTEST, *tests],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate()
            return TESTS_FAILED, f"{output}\nFAILED after {LIMIT_SECONDS} s without an end"
        return process.returncode, output

    @contextmanager
    def edited(self, edits: Iterable[Edit]) -> Iterator[None]:
        """Apply edits for a while."""
        kept = {edit.file: (self._folder / edit.file).read_text() for edit in edits}
        try:
            for edit in edits:
                path = self._folder / edit.file
                path.write_text(edit.applied(path.read_text()))
            yield
        finally:
            for file, text in kept.items():
                (self._folder / file).write_text(text)


_FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)


def run_one(copy: Copy, mutation: Mutation) -> Ran:
    """Run the tests of a mutation with its edits."""
    with copy.edited(mutation.edits):
        migrates = any(edit.file.startswith(MIGRATED) for edit in mutation.edits)
        code, output = copy.run(mutation.tests, migrates=migrates)
    return Ran(mutation, code, _FAILED.findall(output), output)


def run(mutations: Sequence[Mutation], *, jobs: int, verbose: bool) -> int:
    """Run mutations side by side, print what each led to; return how many nobody missed."""
    copies: SimpleQueue[Copy] = SimpleQueue()

    @contextmanager
    def a_copy() -> Iterator[Copy]:
        copy = copies.get()
        try:
            yield copy
        finally:
            copies.put(copy)

    def as_they_are(room: str) -> tuple[int, str]:
        tests = {test for each in mutations if each.room == room for test in each.tests}
        with a_copy() as copy:
            return copy.run(sorted(tests))

    def mutated(mutation: Mutation) -> Ran:
        with a_copy() as copy:
            return run_one(copy, mutation)

    unnoticed = 0
    with (
        nullcontext() if PREPARED in os.environ else prepared(),
        TemporaryDirectory(prefix="holdfast-mutations-") as folder,
        ThreadPoolExecutor(jobs) as do,
    ):
        for number in range(jobs):
            copies.put(Copy(Path(folder, str(number))))
        rooms = sorted({each.room for each in mutations})
        for room, (code, output) in zip(rooms, do.map(as_they_are, rooms), strict=True):
            if code:
                sys.stdout.write(f"{output}\nThe tests of {room} fail as they are.\n")
                return len(mutations)
        for ran in do.map(mutated, mutations):
            unnoticed += not ran.is_missed
            _print(ran, verbose=verbose)
    sys.stdout.write(
        f"safeties removed: {len(mutations)}; of them, noticed by no test: {unnoticed}\n"
    )
    return unnoticed


def _print(ran: Ran, *, verbose: bool) -> None:
    mutation = ran.mutation
    if ran.is_missed:
        end = f"noticed by {ran.failed[0]}"
    elif ran.is_skipped:
        end = "NOT TRIED: its tests were skipped"
    elif ran.code == 0:
        end = "NOTICED BY NO TEST"
    else:
        end = f"NOT TRIED: pytest ended with {ran.code}"
    sys.stdout.write(f"{mutation.room}/{mutation.name}: {end}\n")
    if verbose or ran.code not in {0, TESTS_FAILED}:
        sys.stdout.write(f"{ran.output}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Remove the safeties that are named, or all; return 1 if nobody missed one."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ROOM|NAME", help="rooms or names; else all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--verbose", action="store_true", help="print what the tests print")
    chosen = parser.parse_args(arguments)
    mutations = load()
    known = {name for each in mutations.values() for name in (each.room, each.name)}
    if unknown := set(chosen.names) - known:
        parser.error(f"no mutation or room {', '.join(sorted(unknown))}")
    selected = [
        each
        for each in mutations.values()
        if not chosen.names or {each.room, each.name} & set(chosen.names)
    ]
    return int(bool(run(selected, jobs=chosen.jobs, verbose=chosen.verbose)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
