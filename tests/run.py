"""`make test`: all but the long tests, as units of work that run side by side, as most tests wait.

A unit is a few files of one folder, run by a process of its own on a Postgres of its own. The units
that take longest begin first; there is one more at work than processors. How long a file takes is
in `durations.json`; `python -m tests.run --record` measures it again. The output of a unit follows
in one piece when it has ended, and the last lines are the time that each folder took.

On a server that is given the units would meet, so there all tests run one after another.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import pytest

from tests.support.job.class_archive import java_options

RECORD = Path(__file__).with_name("durations.json")

PYTEST = (sys.executable, "-m", "pytest", "-m", "not long")

UNIT_SECONDS = 60.0
"""What the files of a unit take together, unless one takes longer by itself. A process costs three
seconds before its first test; the last unit to begin keeps the others waiting at most this long."""

SPARK = "tests/spark/"
SPARK_UNIT_SECONDS = 240.0
"""The same for files that share a Spark session, which takes some ten seconds to start."""

NEW_SECONDS = 2.0
"""For a file that was never measured, in this folder or in another."""

WORKERS_MAX = 4
"""Of however many processors: a unit with Spark has two Java processes at times."""


@dataclass(frozen=True)
class Unit:
    """Test files that one process runs, and the seconds that they are expected to take."""

    files: tuple[str, ...]
    expected: float

    def __str__(self) -> str:
        first, last = self.files[0], self.files[-1]
        return first if first == last else f"{first} to {Path(last).name} ({len(self.files)} files)"


@dataclass(frozen=True)
class Ended:
    """A unit that has ended: pytest's exit code, its time and that of each file, its output."""

    unit: Unit
    code: int
    seconds: float
    files: Mapping[str, float]
    output: bytes

    def __str__(self) -> str:
        end = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return f"{end} in {self.seconds:.0f} s: {self.unit}"


def units(
    files: Iterable[str], recorded: Mapping[str, float], seconds: float = UNIT_SECONDS
) -> list[Unit]:
    """Divide test files into units, each of one folder of `tests`, the longest first.

    The files of a folder stay in order, so that neighbours share what is made once a process.
    """
    folders: dict[Sequence[str], list[str]] = defaultdict(list)
    for file in sorted(files):
        folders[Path(file).parts[:2]].append(file)
    found = [
        unit
        for each in folders.values()
        for unit in _cut(
            each, recorded, SPARK_UNIT_SECONDS if each[0].startswith(SPARK) else seconds
        )
    ]
    return sorted(found, key=lambda unit: unit.expected, reverse=True)


def _cut(files: Sequence[str], recorded: Mapping[str, float], seconds: float) -> Iterator[Unit]:
    """Cut a folder into units of about so many seconds, all about equally long."""
    moved = {Path(file).name: seconds for file, seconds in recorded.items()}
    times = [recorded.get(file, moved.get(Path(file).name, NEW_SECONDS)) for file in files]
    share = sum(times) / max(1, round(sum(times) / seconds))
    parts: dict[float, list[int]] = defaultdict(list)
    for number, end in enumerate(accumulate(times)):
        parts[(end - times[number] / 2) // share].append(number)
    for part in parts.values():
        yield Unit(tuple(files[n] for n in part), sum(times[n] for n in part))


@dataclass
class Runner:
    """Runs units, and can end those that are running."""

    folder: Path
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)
    _ending: bool = False

    def run(self, unit: Unit) -> Ended:
        """Run one unit to its end."""
        began = time.monotonic()
        durations = self.folder / f"{abs(hash(unit))}.json"
        command = [*PYTEST, "-p", "tests.support.durations"]
        with self._lock:
            if self._ending:
                raise KeyboardInterrupt
            # In a group of its own: Ctrl-C reaches it once, from `end`, and not twice.
            process = subprocess.Popen(
                [*command, "--durations=10", *unit.files],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"HOLDFAST_TEST_DURATIONS": str(durations)},
                process_group=0,
            )
            self._running.add(process)
        output, _ = process.communicate()
        with self._lock:
            self._running.remove(process)
        files = json.loads(durations.read_text()) if durations.exists() else {}
        # A file may have long tests alone.
        code = 0 if process.returncode == pytest.ExitCode.NO_TESTS_COLLECTED else process.returncode
        return Ended(unit, code, time.monotonic() - began, files, output)

    def end(self) -> None:
        """Interrupt what runs, which ends what it started, and begin nothing more."""
        with self._lock:
            self._ending = True
            for process in self._running:
                process.send_signal(signal.SIGINT)


def run_all(work: Sequence[Unit], workers: int) -> list[Ended]:
    """Run units from a queue, and write the output of each when it has ended."""
    ended: list[Ended] = []
    with TemporaryDirectory(prefix="holdfast-durations-") as folder:
        runner = Runner(Path(folder))
        with ThreadPoolExecutor(workers) as pool:
            try:
                for future in as_completed([pool.submit(runner.run, unit) for unit in work]):
                    ended.append(future.result())
                    sys.stdout.buffer.write(ended[-1].output + f"{ended[-1]}\n\n".encode())
                    sys.stdout.flush()
            except KeyboardInterrupt:
                runner.end()
                pool.shutdown(cancel_futures=True)
                raise
    return ended


def table(files: Mapping[str, float]) -> str:
    """Return the seconds of each folder, the longest first, and of all of them."""
    folders: dict[str, list[float]] = defaultdict(list)
    for file, seconds in files.items():
        folders[str(Path(file).parent)].append(seconds)
    rows = sorted(folders.items(), key=lambda row: sum(row[1]), reverse=True)
    lines = [f"{sum(times):7.0f} s {len(times):5} files  {name}" for name, times in rows]
    return "\n".join([*lines, f"{sum(files.values()):7.0f} s {len(files):5} files  together"])


def main(arguments: Sequence[str]) -> int:
    """Return 0 if all tests passed."""
    if os.environ.get("HOLDFAST_TEST_DSN"):
        return subprocess.run(PYTEST, check=False).returncode
    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as below nohup
            signal.signal(number, signal.default_int_handler)
    os.environ.setdefault("HOLDFAST_SPARK_JAVA_OPTIONS", java_options())
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    files = [str(path) for path in Path("tests").rglob("test_*.py")]
    workers = min((os.cpu_count() or 1) + 1, WORKERS_MAX)
    ended = run_all(units(files, recorded), workers)
    measured = {file: seconds for unit in ended for file, seconds in unit.files.items()}
    if "--record" in arguments:
        rounded = {file: round(seconds, 1) for file, seconds in sorted(measured.items())}
        RECORD.write_text(json.dumps(rounded, indent=0) + "\n")
    sys.stdout.write("".join(f"{unit}\n" for unit in ended))
    sys.stdout.write(
        f"{table(measured)}\n{time.monotonic() - began:7.0f} s of wall time, {workers} at a time\n"
    )
    return max((unit.code for unit in ended), key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
