"""`holdfast job run` as a process, with its output and files."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.java import spark_environment
from tests.benchmarks.operator.rules import POLICY_TEXT

PATIENCE_S = 180

_LINE = re.compile(r"^batch=(\d+) .*?\brows=(\d+) .*?\bms=(\d+)", re.MULTILINE)


_LOGS = ("offsets", "commits")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the job reports it."""

    number: int
    rows: int
    ms: int


@dataclass(frozen=True)
class Running:
    """A job in a process group of its own; `folder` holds its events and its checkpoint."""

    process: subprocess.Popen[bytes]
    folder: Path
    log: Path

    @property
    def batches(self) -> list[Batch]:
        """The batches reported so far."""
        text = self.log.read_text(errors="replace")
        return [Batch(*map(int, found)) for found in _LINE.findall(text)]

    @property
    def in_flight(self) -> int | None:
        """The batch that Spark has begun and not ended, if there is one."""
        begun, ended = (_newest(self.folder / "checkpoint" / name) for name in _LOGS)
        return begun if begun > ended else None

    def until(self, condition: Callable[[], object], every_s: float = 0.02) -> None:
        """Wait for a condition; raises RuntimeError when the job ends or time is up first."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the job did not get there: {self.log.read_text()[-2000:]}")
            time.sleep(every_s)

    def kill(self) -> None:
        """SIGKILL for Python, JVM and workers alike, as a machine that is gone."""
        os.killpg(self.process.pid, signal.SIGKILL)


def _newest(folder: Path) -> int:
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=-1)


@contextmanager
def job(folder: Path, dsn: str, stream: str, interval_ms: int) -> Iterator[Running]:
    """Start the job over `folder/events`; whatever is left of it at the end is killed."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY_TEXT)
    command = [
        *(sys.executable, "-m", "dispatcher.cli.main", "job", "run"),
        *("--format", "parquet"),
        *("--path", str(folder / "events")),
        *("--checkpoint", str(folder / "checkpoint")),
        *("--stream", stream),
        *("--policy", str(policy)),
        *("--trigger-interval", f"{interval_ms}ms"),
    ]
    log = folder / f"stderr-{time.monotonic_ns()}.txt"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env={**os.environ, **spark_environment(), "HOLDFAST_DSN": dsn},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    running = Running(process, folder, log)
    try:
        yield running
    finally:
        if process.poll() is None:
            running.kill()
        process.wait()
