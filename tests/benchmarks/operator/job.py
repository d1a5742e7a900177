"""`holdfast job run` as a process, with its notes and files."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.deploy.local.java import spark_environment
from tests.benchmarks.operator.rules import POLICY_TEXT

PATIENCE_S = 400

_LOGS = ("offsets", "commits")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as Spark reports it; seconds, and bytes of RocksDB's files."""

    number: int
    rows: int
    began: float
    seconds: float
    parts: dict[str, float]
    """Phases of Spark, of which the whole is `triggerExecution`."""
    state: dict[str, int]
    """`customMetrics` and `commitTimeMs` of the operator: sums over its partitions."""
    partitions: int

    @classmethod
    def read(cls, report: dict[str, Any]) -> "Batch":
        (operator,) = report["stateOperators"]
        return cls(
            number=report["batchId"],
            rows=report["numInputRows"],
            began=datetime.fromisoformat(report["timestamp"]).timestamp(),
            seconds=report["durationMs"]["triggerExecution"] / 1000,
            parts={name: ms / 1000 for name, ms in report["durationMs"].items()},
            state={**operator["customMetrics"], "commitTimeMs": operator["commitTimeMs"]},
            partitions=operator["numShufflePartitions"],
        )

    @property
    def ended(self) -> float:
        return self.began + self.seconds

    def state_s(self, name: str) -> float:
        """Seconds of a time in `state`, of a mean partition."""
        return self.state.get(name, 0) / 1000 / self.partitions

    @property
    def checkpoint_s(self) -> float:
        """What goes into making the batch durable: plan, state and commit."""
        return self.parts["walCommit"] + self.state_s("commitTimeMs") + self.parts["commitOffsets"]


@dataclass(frozen=True)
class Running:
    """A job in a process group of its own; `folder` holds its events and its checkpoint."""

    process: subprocess.Popen[bytes]
    began: float
    folder: Path
    log: Path
    notes: Path

    def noted(self) -> list[dict[str, Any]]:
        """Every note so far."""
        text = self.notes.read_text() if self.notes.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def batches(self) -> list[Batch]:
        """The batches reported so far."""
        return [Batch.read(each["progress"]) for each in self.noted() if each["what"] == "batch"]

    def when(self, what: str) -> float:
        """When something was first noted, in seconds since the process was started."""
        return next(each["at"] for each in self.noted() if each["what"] == what) - self.began

    @property
    def in_flight(self) -> int | None:
        """The batch that Spark has begun and not ended, if there is one."""
        begun, ended = (_newest(self.folder / "checkpoint" / name) for name in _LOGS)
        return begun if begun > ended else None

    def until(self, condition: Callable[[], object], every_s: float = 0.05) -> None:
        """Wait for a condition; raises RuntimeError when the job ends or time is up first."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the job did not get there: {self.log.read_text()[-2000:]}")
            time.sleep(every_s)

    def settle(self) -> None:
        """Wait until no batch has been in flight for a second."""
        quiet = time.monotonic()

        def settled() -> bool:
            nonlocal quiet
            if self.in_flight is not None:
                quiet = time.monotonic()
            return time.monotonic() - quiet > 1

        self.until(settled)

    def kill(self) -> float:
        """SIGKILL for Python, JVM and workers alike, as a machine that is gone; when that was."""
        at = time.time()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return at


def kill_in_flight(running: Running) -> float:
    """Wait for a batch that begins from now on, and kill the job while it runs; when that was.

    Raises RuntimeError when the batch ended before the signal.
    """
    seen = max(batch.number for batch in running.batches)
    running.until(lambda: (running.in_flight or 0) > seen, every_s=0.002)
    at = running.kill()
    if running.in_flight is None:
        raise RuntimeError("the batch ended before the signal")
    return at


def _newest(folder: Path) -> int:
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=-1)


@contextmanager
def job(
    folder: Path,
    dsn: str,
    stream: str,
    files_per_batch: int = 1,
    *,
    options: Sequence[str] = (),
    program: str = "tests.benchmarks.operator.timed",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Start the job over `folder/events`; whatever is left of it at the end is killed.

    A batch takes so many files and begins when the one before has ended. `options` are more of
    `job run`; `program` is the module that runs it with a stopwatch.
    """
    policy = folder / "policy.toml"
    policy.write_text(POLICY_TEXT)
    stamp = time.monotonic_ns()
    log, notes = folder / f"stderr-{stamp}.txt", folder / f"notes-{stamp}.jsonl"
    command = [
        *(sys.executable, "-m", program, str(notes)),
        *("--format", "parquet"),
        *("--path", str(folder / "events")),
        *("--checkpoint", str(folder / "checkpoint")),
        *("--stream", stream),
        *("--policy", str(policy)),
        *("--trigger-interval", "1ms", "--max-files-per-trigger", str(files_per_batch)),
        *options,
    ]
    began = time.time()
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env={**os.environ, **spark_environment(), "HOLDFAST_DSN": dsn, **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    running = Running(process, began, folder, log, notes)
    try:
        yield running
    finally:
        if process.poll() is None:
            running.kill()
