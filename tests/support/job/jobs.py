"""The exposure job over a directory of files, one file a batch, in the tests' Spark session."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pytest
from tenacity import wait_none

from holdfast.sink import OutboxSink, QuarantineLimit
from holdfast.sink.contract import failpoints
from holdfast.sink.rows.batch import BatchInput
from holdfast.sink.rows.quarantine_limit import REFUSED_ROWS
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format
from tests.support.job.driver import PATIENT
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from holdfast.spark_app.checkpoint.files import CheckpointFiles
    from holdfast.spark_app.lifecycle.failure import Failure
    from holdfast.spark_app.operator.job import Job
    from holdfast.spark_app.savepoint.manifest import Manifest

POLICY = """
version = "2026-11-01"
[[default]]
limit_minor = 5_000_000
release_level_minor = 5_000_000
[[merchant]]
id = "m_eur"
currency = "EUR"
limit_minor = 1_000_000
release_level_minor = 500_000
"""

DAY = datetime(2024, 11, 4, tzinfo=UTC)
"""Long past on every clock: what is dated ahead of its batch is dated ahead on purpose."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LATE = ("Python worker failed to connect back", "did not start within 10 s")
"""What Spark, and what the job, say of a Python process that took too long to start."""

T = TypeVar("T")


def at(clock: str) -> datetime:
    """`12:15` or `12:15:30` on the day of the tests."""
    hours, minutes, *seconds = map(int, clock.split(":"))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=sum(seconds))


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def event(event_id: str, clock: str, amount: int, merchant: str = "m_1", **other: Any) -> bytes:
    """One line of an event file; `other` replaces or adds fields, None leaves one out."""
    row = {
        "event_id": event_id,
        "merchant_id": merchant,
        "type": "payout_submitted",
        "amount_minor": amount,
        "currency": "USD",
        "occurred_at": at(clock).isoformat().replace("+00:00", "Z"),
    } | other
    return json.dumps({name: value for name, value in row.items() if value is not None}).encode()


def busy(number: int, minute: int, rows: int = 10) -> list[bytes]:
    """The lines of a file: five merchants so many minutes after noon, whose holds come and go."""
    clock = f"{12 + minute // 60}:{minute % 60:02}"
    amount = [3_000_000, -2_000_000][number % 3 == 2]
    return [event(f"e{number}-{i}", clock, amount, f"m_{i % 5}") for i in range(rows)]


def put(folder: Path, number: int, lines: Sequence[bytes]) -> None:
    """Put an event file into a directory as a whole; files are read in order of their numbers."""
    folder.mkdir(exist_ok=True)
    part = folder / f".{number:03}.json"
    part.write_bytes(b"".join(line + b"\n" for line in lines))
    order(part, number)
    part.rename(folder / f"{number:03}.json")


def order(path: Path, number: int) -> None:
    """Give a file its place: Spark takes the oldest first."""
    os.utime(path, (1_700_000_000 + number,) * 2)


def commits(checkpoint: Path) -> list[int]:
    """The batches that Spark has recorded."""
    return sorted(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """Leave a batch as a driver does that dies between the sink's commit and Spark's."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink()


@contextmanager
def armed(points: str) -> Iterator[None]:
    """Arm failpoints in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_armed", points)
        patch.setattr(failpoints, "_passed", {})
        yield


def patiently(run: Callable[[], T]) -> T:
    """Run again what ended because Spark waits ten seconds for a Python process to start.

    On a busy machine that is too short at times. It is before the first batch: nothing was done.
    """
    for _ in range(4):
        try:
            return run()
        except Exception as error:
            if not any(message in str(error) for message in LATE):
                raise
    return run()


@dataclass
class Play:
    """Runs of one stream, each over the files that are there."""

    spark: "SparkSession"
    dsn: str
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    refused_rows: int = REFUSED_ROWS

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def put(self, *files: Sequence[bytes], first: int = 0) -> None:
        """Put event files, from the one with this number on."""
        for number, lines in enumerate(files, first):
            put(self.folder / "events", number, lines)

    def job(self, **changed: Any) -> "Job":
        from holdfast.spark_app.operator.job import Job

        described = {
            "paths": (str(self.folder / "events"),),
            "format": Format.JSON,
            "checkpoint": str(self.folder / "checkpoint"),
            "stream": "payouts",
            "policy": Policy.parse(POLICY),
            "key_groups": 4,
            "max_files_per_trigger": 1,
        }
        return Job(**described | dict(self.options) | changed)

    def sink(
        self, job: "Job", select: Callable[[pa.Table], BatchInput] | None = None, **settings: Any
    ) -> OutboxSink:
        from holdfast.spark_app.operator import output

        return OutboxSink(
            self.dsn,
            stream=job.stream,
            checkpoint=job.checkpoint,
            select=select or output.select,
            also=output.writer(job.stream),
            suppress_repeats=True,
            quarantine_limit=QuarantineLimit(rows=self.refused_rows, share=1),
            **{"timeouts": PATIENT} | settings,
        )

    def files(self, **changed: Any) -> "CheckpointFiles":
        """The files of the checkpoint, as a start has them that owns the stream."""
        from holdfast.spark_app.checkpoint.files import CheckpointFiles

        return CheckpointFiles(self.spark, self.job(**changed).checkpoint)

    @contextmanager
    def attempt(
        self,
        stop: Event | None = None,
        interval_ms: int | None = None,
        sink: Mapping[str, Any] = MappingProxyType({}),
        state_memory_mb: int | None = None,
        **changed: Any,
    ) -> Iterator[Callable[..., None]]:
        """A run of the job as the command makes one, without its restarts, in the tests' session.

        It ends when all files are done, or with an interval when it is stopped.
        """
        from holdfast.spark_app.lifecycle.attempt import Trigger, attempt
        from holdfast.spark_app.runtime import session

        job = self.job(**changed)
        spark = session.fix(self.spark.newSession())
        if state_memory_mb is not None:
            session.bound(spark, state_memory_mb)
        ends = Trigger(available_now=interval_ms is None, interval_ms=interval_ms or 0)
        with closing(self.sink(job, **sink)) as opened:
            yield partial(attempt, spark, job, opened, ends, stop or Event())

    def command(self, **changed: Any) -> None:
        """Run the job once over all files."""
        with self.attempt(**changed) as run:
            patiently(run)

    def supervised(
        self, on_restart: "Callable[[Failure], object]" = lambda _: None, **sink: Any
    ) -> None:
        """Run the job with its restarts, and without the pauses before them."""
        from holdfast.spark_app.lifecycle.supervisor import supervise

        with self.attempt(sink=sink) as run:
            supervise(run, stop=Event(), pause=wait_none(), on_restart=on_restart)

    def run_until(self, met: Callable[[], object], interval_ms: int) -> None:
        """Run the job without an end, and stop it when a condition is met, as SIGTERM does."""
        stop = Event()
        with ThreadPoolExecutor(1) as pool, self.attempt(stop, interval_ms) as run:
            running = pool.submit(patiently, run)
            try:
                eventually(lambda: met() or running.done(), 240)
            finally:
                stop.set()
            running.result(240)
        assert met()

    def save(self, checkpoint: str, to: str, batch: int | None = None) -> "Manifest":
        """Write a savepoint of a checkpoint."""
        from holdfast.spark_app.runtime import session
        from holdfast.spark_app.savepoint.command import write

        spark = session.fix(self.spark.newSession())
        return write(spark, checkpoint, to, self.dsn, batch)

    def run(self, **changed: Any) -> "list[StreamingQueryProgress]":
        """Run until all files are done; raises what the query ended with."""
        return patiently(lambda: self._query(**changed))

    def _query(self, **changed: Any) -> "list[StreamingQueryProgress]":
        from holdfast.spark_app.operator.job import start
        from holdfast.spark_app.runtime import session

        job = self.job(**changed)
        sink = self.sink(job)
        query = start(session.fix(self.spark.newSession()), job, sink, available_now=True)
        try:
            assert query.awaitTermination(240)
            return query.recentProgress
        finally:
            query.stop()
            sink.close()


def numbers(checkpoint: Path, log: str = "commits") -> list[int]:
    """Return the batches in a log, in their order."""
    return sorted(int(path.name) for path in (checkpoint / log).glob("[0-9]*"))


def newest(checkpoint: Path, log: str = "commits") -> int:
    """Return the newest batch in a log; -1 before the first."""
    return max(numbers(checkpoint, log), default=-1)


def ends(checkpoint: Path, topic: str, number: int) -> dict[int, int]:
    """Return where a batch ends in each partition of a topic; empty for -1."""
    if number < 0:
        return {}
    plan = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return {int(partition): end for partition, end in json.loads(plan[2])[topic].items()}
