"""`make test`: all tests, in parts that run side by side, because most of them wait.

A part is a process with a Postgres of its own. There is one more at work than processors; what a
part says follows in one piece when it has ended. On a server that is given the parts would meet, so
there all tests run one after another.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

PARTS = (
    ("tests/integration/dispatcher",),
    ("tests/integration",),
    ("tests/spark",),
    ("tests/faults",),
    (
        "tests/spark/test_bundled_java.py",
        "tests/spark/test_job_command.py",
        "tests/spark/test_job_inspect.py",
        "tests/spark/test_job_restart.py",
    ),
    ("tests/e2e",),
    ("tests/integration/cli",),
    ("tests/unit",),
    ("tests/migrations", "tests/contract", "tests/e2e/runbook"),
    ("tests/browser",),
)
"""What runs in one process, in the order in which they begin: the long ones first. What is named by
itself does not run with the folder that it is in."""

WORKERS_MAX = 4
"""Of however many processors: a part with Spark has two Java processes at times."""


@dataclass(frozen=True)
class Ended:
    """A part that has ended: pytest's exit code, how long it took, and what it said."""

    part: Sequence[str]
    code: int
    seconds: float
    output: bytes

    def __str__(self) -> str:
        end = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return f"{end} in {self.seconds:.0f} s: {' '.join(self.part)}"


def left_out(files: Iterable[Path], parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the test files that are in no part."""
    named = [Path(path) for part in parts for path in part]
    return sorted(str(file) for file in files if not any(map(file.is_relative_to, named)))


def ignored(part: Sequence[str], parts: Iterable[Sequence[str]]) -> list[str]:
    """Return what lies in the folders of a part and belongs to another."""
    others = [path for other in parts if other != part for path in other]
    return [path for path in others if any(map(Path(path).is_relative_to, part))]


def run(part: Sequence[str]) -> Ended:
    """Run one part to its end."""
    began = time.monotonic()
    ignore = [f"--ignore={path}" for path in ignored(part, PARTS)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--durations=10", *part, *ignore],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return Ended(part, done.returncode, time.monotonic() - began, done.stdout)


def main() -> int:
    """Return 0 if all tests passed."""
    if missing := left_out(Path("tests").rglob("test_*.py"), PARTS):
        sys.exit(f"in no part of tests/run.py: {', '.join(missing)}")
    if os.environ.get("HOLDFAST_TEST_DSN"):
        return subprocess.run([sys.executable, "-m", "pytest"], check=False).returncode
    ended: list[Ended] = []
    with ThreadPoolExecutor(min((os.cpu_count() or 1) + 1, WORKERS_MAX)) as workers:
        try:
            for part in as_completed([workers.submit(run, part) for part in PARTS]):
                ended.append(part.result())
                sys.stdout.buffer.write(ended[-1].output + f"{ended[-1]}\n\n".encode())
                sys.stdout.flush()
        except KeyboardInterrupt:
            workers.shutdown(cancel_futures=True)
            raise
    sys.stdout.write("".join(f"{part}\n" for part in ended))
    return max((part.code for part in ended), key=abs)


if __name__ == "__main__":
    sys.exit(main())
