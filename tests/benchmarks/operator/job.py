"""`holdfast job run` as a process, with its notes and files."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.operator.ours import POLICY_TEXT
from tests.support.job.job_process import JobProcess
from tests.support.job.job_process import running as process_running
from tests.support.job.jobs import newest

LOGS = ("offsets", "commits")


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

    job: JobProcess
    began: float
    folder: Path
    notes: Path

    @property
    def pid(self) -> int:
        return self.job.process.pid

    def noted(self, what: str) -> list[dict[str, Any]]:
        """The notes of a kind so far."""
        text = self.notes.read_text() if self.notes.exists() else ""
        lines = (line for line in text.splitlines(keepends=True) if line.endswith("\n"))
        return [each for line in lines if (each := json.loads(line))["what"] == what]

    @property
    def batches(self) -> list[Batch]:
        """The batches reported so far."""
        return [Batch.read(each["progress"]) for each in self.noted("batch")]

    @property
    def with_rows(self) -> list[Batch]:
        """Those of them that had rows."""
        return [batch for batch in self.batches if batch.rows]

    def when(self, what: str) -> float:
        """When something was first noted, in seconds since the process was started."""
        return float(self.noted(what)[0]["at"]) - self.began

    @property
    def in_flight(self) -> int | None:
        """The batch that Spark has begun and not ended, if there is one."""
        begun, ended = (newest(self.folder / "checkpoint", name) for name in LOGS)
        return begun if begun > ended else None

    def settle(self) -> None:
        """Wait until no batch has been in flight for a second."""
        quiet = time.monotonic()

        def settled() -> bool:
            nonlocal quiet
            if self.in_flight is not None:
                quiet = time.monotonic()
            return time.monotonic() - quiet > 1

        self.job.until(settled)

    def kill_in_flight(self) -> float:
        """Wait for a batch that begins from now on, and kill the job in it; returns when that was.

        SIGKILL for Python, JVM and workers alike, as a machine that is gone. Raises RuntimeError
        when the batch ended before the signal.
        """
        seen, end = max(batch.number for batch in self.batches), time.monotonic() + 400
        while (self.in_flight or 0) <= seen:
            if self.job.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no batch began: {self.job.said[-2000:]}")
            time.sleep(0.002)
        at = time.time()
        self.job.kill()
        self.job.process.wait()
        if self.in_flight is None:
            raise RuntimeError("the batch ended before the signal")
        return at


@contextmanager
def job(
    folder: Path, dsn: str, stream: str, files_per_batch: int = 1, *, options: Sequence[str] = ()
) -> Iterator[Running]:
    """Start the job over `folder/events`; whatever is left of it at the end is killed.

    A batch takes so many files and begins when the one before has ended. `options` are more of
    `job run`.
    """
    policy = folder / "policy.toml"
    policy.write_text(POLICY_TEXT)
    notes = folder / f"notes-{time.monotonic_ns()}.jsonl"
    words = [
        *(sys.executable, "-m", "tests.benchmarks.operator.timed", str(notes)),
        *("--format", "parquet", "--path", str(folder / "events"), "--stream", stream),
        *("--checkpoint", str(folder / "checkpoint"), "--policy", str(policy)),
        *("--trigger-interval", "1ms", "--max-files-per-trigger", str(files_per_batch)),
        *options,
    ]
    began = time.time()
    with process_running(folder, dsn, words) as process:
        yield Running(process, began, folder, notes)
