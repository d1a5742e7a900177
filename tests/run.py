"""`make test`, `make test-rest` and `make quick`: parts of the work that run side by side.

A part is a few test files of one folder, run by a process of its own on a Postgres of its own. Of
two tiers a file runs once, with its tests of both, which share what a module makes. The parts that
take longest begin first. As tests wait, more of them are at work than processors: another one
begins while a processor is idle.
How long a file takes is in `durations.json`, which `--record` writes again. What a part prints
follows in one piece when it has ended, of `make quick` if it failed. The last lines are how each
part ended.

On a server that is given the parts would meet, so there all tests run one after another.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest

from tests.support.servers.databases import PREPARED, PREPARED_TEMPLATE, migrate

RECORD = Path(__file__).with_name("durations.json")

TIERS = {"test": "not rest and not long", "rest": "rest and not long"}
"""What pytest chooses for `make test` and `make test-rest`. `make test-long` runs what is left."""

QUICK = ("tests/unit/", "tests/contract/")
"""The tests of `make test` that `make quick` runs."""

REST = re.compile(r"^pytestmark = (?:\[[^\]]*)?pytest\.mark\.rest\b", re.MULTILINE)
"""In a file that has nothing for `make test`: it is not imported to see that."""

UNIT_SECONDS = 150.0
"""What the files of a unit take together, unless one takes longer by itself. A process uses five
seconds of processor time for its imports and its server; the last unit to begin keeps the others
waiting at most this long."""

FOLDER_SECONDS = {"tests/spark": 240.0}
"""The same for files that share a Spark session, which takes some ten seconds to start."""

QUICK_SECONDS = 20.0
"""The same where every processor is to have its share to the end."""

NEW_SECONDS = 2.0
"""For a file that was never measured."""

WORKERS, WORKERS_MAX = 4, 8
"""How many parts run at a time, of however many processors; and how many if they only wait."""

PART_BYTES = 2 << 30
"""What must be free for one more than `WORKERS`: a part with Spark may have two Java processes."""

BUSY_PERCENT = 75.0
"""One more begins if the processors were busy for less of the last `LOOK_SECONDS`."""

LOOK_SECONDS = 5.0
"""A part imports for three seconds before it waits for the first time."""

BIN = Path(sys.executable).parent

LINKS = Path(".holdfast/links")  # made by `make links`

GUEST = {"guest", "guest_nice"}
"""Times that Linux counts in those of users, too."""

OLDEST_PYTHON = (
    *("--python-version", "3.10", "--cache-dir", ".mypy_cache/oldest"),
    *("-p", "holdfast.sink", "-p", "holdfast.receiver", "-p", "holdfast.migrations"),
    *(f"-mholdfast.testing.{name}" for name in ("checking", "fake", "replaying")),
)
"""What an own job, its tests, a receiver and its migrations import; the rest needs 3.11."""

CHECKS: Mapping[str, Sequence[str]] = {
    "types": [str(BIN / "mypy")],
    "types on Python 3.10": [str(BIN / "mypy"), *OLDEST_PYTHON],
    "lint": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "import arrows": ["env", f"PYTHONPATH={LINKS}", str(BIN / "lint-imports")],
}


@dataclass(frozen=True)
class Part:
    """A command, and the seconds that it is expected to take."""

    name: str
    command: Sequence[str]
    expected: float
    has_tests: bool = False


@dataclass(frozen=True)
class Ended:
    """A part that has ended: its exit code, its seconds, those of processors and of each file.

    The seconds of processors leave out what outlives its parent: Postgres, and the
    JVM of Spark.
    """

    part: Part
    code: int
    seconds: float
    processor: float
    files: Mapping[str, float]

    def __str__(self) -> str:
        end = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return (
            f"{end} in {self.seconds:.0f} s, {self.processor:.0f} of a processor: {self.part.name}"
        )


def files_of(tier: str, paths: Iterable[Path]) -> Iterator[str]:
    """Yield the test files whose text may have a test of a tier, in order."""
    for path in sorted(paths):
        text = path.read_text()
        if "mark.rest" in text if tier == "rest" else not REST.search(text):
            yield str(path)


def units(
    files: Iterable[str], recorded: Mapping[str, float], seconds: float | None = None
) -> Iterator[tuple[float, Sequence[str]]]:
    """Divide files into units of one folder of `tests` that take about equally long.

    The files of a folder stay in order, so that neighbours share what is made once a process.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    for file in files:
        folders["/".join(Path(file).parts[:2])].append(file)
    for folder, each in folders.items():
        times = [recorded.get(file, NEW_SECONDS) for file in each]
        limit = seconds or FOLDER_SECONDS.get(folder, UNIT_SECONDS)
        share = sum(times) / max(1, round(sum(times) / limit)) or 1
        cut: dict[float, list[int]] = defaultdict(list)
        for number, end in enumerate(accumulate(times)):
            cut[(end - times[number] / 2) // share].append(number)
        for unit in cut.values():
            yield sum(times[n] for n in unit), [each[n] for n in unit]


def parts(names: Sequence[str], recorded: Mapping[str, Mapping[str, float]]) -> Iterator[Part]:
    """Yield the parts of tiers, or of `quick`."""
    tiers, options, seconds = names, ["--durations=10"], None
    if "quick" in names:
        tiers, options, seconds = ["test"], ["-q"], QUICK_SECONDS
        for check, command in CHECKS.items():  # half a minute where nothing is known from before
            yield Part(check, command, 2 * QUICK_SECONDS)
    times: dict[str, float] = defaultdict(float)
    files = set[str]()
    for tier in tiers:
        of_tier = list(files_of(tier, Path("tests").rglob("test_*.py")))
        files.update(of_tier)
        for file in of_tier:
            times[file] += recorded.get(tier, {}).get(file, NEW_SECONDS)
    if "quick" in names:
        files = {file for file in files if file.startswith(QUICK)}
    marks = " or ".join(f"({TIERS[tier]})" for tier in tiers)
    pytest_of = [sys.executable, "-m", "pytest", "-m", marks, *options]
    for expected, unit in units(sorted(files), times, seconds):
        last = f" to {Path(unit[-1]).name} ({len(unit)} files)" if unit[1:] else ""
        yield Part(unit[0] + last, [*pytest_of, *unit], expected, has_tests=True)


class Running:
    """A part that runs, in a group of its own: Ctrl-C reaches it once, from `run_all`."""

    def __init__(self, part: Part, output: Path) -> None:
        self._part, self._began = part, time.monotonic()
        self._output, self._report = output, output.with_suffix(".xml")
        report = [f"--junitxml={self._report}", "-ojunit_family=xunit1"] if part.has_tests else []
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                [*part.command, *report],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def end(self, status: int, processor: float, *, quiet: bool) -> Ended:
        """Write what it printed, and return how it ended, after it was waited for."""
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        if self._part.has_tests and code == pytest.ExitCode.NO_TESTS_COLLECTED:
            code = 0  # its files have tests of other tiers
        files: dict[str, float] = defaultdict(float)
        if self._report.exists():
            for case in ET.parse(self._report).iter("testcase"):  # noqa: S314 - our own
                files[case.attrib["file"]] += float(case.attrib["time"])
        ended = Ended(self._part, code, time.monotonic() - self._began, processor, files)
        if code or not quiet:
            sys.stdout.buffer.write(self._output.read_bytes())
        sys.stdout.buffer.write(f"{ended}\n".encode())
        sys.stdout.flush()
        return ended


class Room:
    """Whether one more part may begin."""

    def __init__(self, workers: int, workers_max: int) -> None:
        self._workers, self._workers_max = workers, workers_max
        self._looked = time.monotonic()
        self._before = psutil.cpu_times()

    def is_there(self, running: int) -> bool:
        """Return whether there is room beside this many: always below `workers`, then if idle."""
        if running < self._workers:
            return True
        if running >= self._workers_max or time.monotonic() - self._looked < LOOK_SECONDS:
            return False
        self._looked = time.monotonic()
        before, self._before = self._before, psutil.cpu_times()
        busy = busy_percent(before, self._before)
        return busy < BUSY_PERCENT and psutil.virtual_memory().available > PART_BYTES


def busy_percent(before: Any, after: Any) -> float:
    """Return how busy the machine's processors were between two `psutil.cpu_times()`."""
    idle, total = (
        sum(getattr(after, name) - getattr(before, name) for name in names)
        for names in ({"idle", "iowait"} & set(after._fields), set(after._fields) - GUEST)
    )
    return float(100 * (1 - idle / max(total, 0.01)))


def run_all(work: Iterable[Part], room: Room, *, quiet: bool = False) -> list[Ended]:
    """Run parts from a queue, and write what each printed when it ended; quiet: if it failed."""
    waiting, running, ended = deque(work), dict[int, Running](), list[Ended]()
    with TemporaryDirectory(prefix="holdfast-parts-") as folder:
        try:
            while waiting or running:
                while waiting and room.is_there(len(running)):
                    begun = Running(waiting.popleft(), Path(folder, str(len(waiting))))
                    running[begun.process.pid] = begun
                pid, status, usage = os.wait3(os.WNOHANG)
                if not pid:
                    time.sleep(0.2)
                    continue
                processor = usage.ru_utime + usage.ru_stime
                ended.append(running.pop(pid).end(status, processor, quiet=quiet))
        finally:
            for each in running.values():
                each.process.send_signal(signal.SIGINT)  # which ends what it started
            for each in running.values():
                each.process.wait()
    return ended


@contextmanager
def prepared() -> Iterator[None]:
    """Make once what every unit would make: classes of Spark, a server with a migrated template."""
    from holdfast.deploy.local.postgres import EmbeddedPostgres
    from tests.support.job.class_archive import java_environment
    from tests.support.servers.databases import LANGUAGE, chosen_major, server_directory

    for name, value in java_environment().items():
        os.environ.setdefault(name, value)
    if os.environ.get(LANGUAGE):
        yield
        return
    with server_directory() as directory:
        with EmbeddedPostgres(directory, major=chosen_major()) as server:
            migrate(server.dsn, PREPARED_TEMPLATE)
        os.environ[PREPARED] = str(directory)
        yield


def main(names: Sequence[str], *, record: bool) -> int:
    """Run tiers, or `quick`; return 0 if all passed."""
    began, quick = time.monotonic(), "quick" in names
    if os.environ.get("HOLDFAST_TEST_DSN") and not quick:
        marks = " or ".join(f"({TIERS[name]})" for name in names)
        return subprocess.run([sys.executable, "-m", "pytest", "-m", marks], check=False).returncode
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as below nohup
            signal.signal(number, signal.default_int_handler)
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    work = sorted(parts(names, recorded), key=lambda part: part.expected, reverse=True)
    processors, before = os.cpu_count() or 1, psutil.cpu_times()
    workers = processors if quick else min(2 * processors, WORKERS)
    with nullcontext() if quick or PREPARED in os.environ else prepared():
        ended = run_all(work, Room(workers, workers if quick else WORKERS_MAX), quiet=quick)
    if record:
        (name,) = names  # what a test takes says nothing of its tier
        recorded[name] = {
            file: round(seconds, 1) for each in ended for file, seconds in each.files.items()
        }
        RECORD.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")
    if not quick:
        sys.stdout.write("\n" + "".join(f"{each}\n" for each in ended))
    sys.stdout.write(
        f"{time.monotonic() - began:7.0f} s of wall time,"
        f" processors {busy_percent(before, psutil.cpu_times()):.0f} % busy\n"
    )
    return max((each.code for each in ended), key=abs)


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main([word for word in words if word != "--record"], record="--record" in words))
