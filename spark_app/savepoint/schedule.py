"""Savepoints of a running job: one in every interval, in another place, without a stop.

A thread reads a committed batch, which no later batch changes, while the query runs. It only reads
the checkpoint, has a session and a connection of its own, and whatever it meets is a warning: the
job continues, and the next interval tries again.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Thread
from typing import Final, Protocol
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.input.source import absolute, holds
from holdfast.spark_app.lifecycle.failure import one_line
from holdfast.spark_app.operator.job import Job
from holdfast.spark_app.runtime import session
from holdfast.spark_app.savepoint import command
from holdfast.spark_app.savepoint.folder import require_place, require_safe
from holdfast.spark_app.savepoint.shelf import Shelf, moment_of, name_of

END_SECONDS: Final = 10
"""How long a stop waits for the savepoint in work to be given up."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When savepoints are written, where, and how many are kept."""

    every_ms: int
    place: str
    keep: int

    def require(self, job: Job) -> "Schedule":
        """Return it with an absolute place; raises CommandError (usage) for an unusable one."""
        place = absolute(self.place)
        require_place(place, "--savepoint-to")
        require_safe(place)
        for other in (*job.paths, job.checkpoint):
            if holds(other, place):
                raise CommandError(
                    f"--savepoint-to {place} lies in {other}. Nothing was started; name a directory"
                    " beside it, best on another store.",
                    ExitCode.USAGE,
                    code="invalid_place",
                )
        return Schedule(self.every_ms, place, self.keep)


class Observer(Protocol):
    """What is told of each savepoint; `reporting.metrics` is one."""

    def saved(self, at: float) -> None:
        """One was written, at this time in seconds since 1970."""

    def not_saved(self) -> None:
        """One was not."""


class Savepoints:
    """Writes the savepoints of one job, also over its restarts."""

    def __init__(self, schedule: Schedule | None, job: Job, dsn: str, observer: Observer) -> None:
        """Without a schedule it writes none. Raises CommandError (usage) for an unusable place."""
        self._schedule = schedule.require(job) if schedule else Schedule(0, "", 0)
        self._job = job
        self._dsn = dsn
        self._observer = observer
        self._every = self._schedule.every_ms / 1000
        self._due: float | None = None
        """On the monotonic clock; None before the first one, which the place decides."""
        self._batch: int | None = None
        """The batch of the newest savepoint."""
        self._thread: Thread | None = None
        self._spark: SparkSession | None = None
        self._tag = ""
        self._ended = False

    @contextmanager
    def written(self, spark: SparkSession) -> Iterator[Callable[[], None]]:
        """Yield what begins a savepoint if one is due; the one in work ends with the block."""
        if not self._every:
            yield lambda: None
            return
        try:
            yield partial(self._tick, spark)
        finally:
            self._end()

    def _tick(self, spark: SparkSession) -> None:
        """Begin a savepoint if one is due and none is in work; returns at once."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        if self._thread is None and (self._due is None or time.monotonic() >= self._due):
            self._spark, self._tag, self._ended = spark, f"holdfast-savepoint-{uuid4()}", False
            self._thread = InheritableThread(
                target=self._run, args=(spark,), name="holdfast savepoint", daemon=True
            )
            self._thread.start()

    def _end(self) -> None:
        """Give up the savepoint in work: its query ends, or fails."""
        thread, self._thread = self._thread, None
        if thread is None or self._spark is None:
            return
        if thread.is_alive():
            self._ended, self._due = True, None
        # A JVM that has died runs no job.
        with suppress(Py4JError, OSError):
            self._spark.sparkContext.cancelJobsWithTag(self._tag)
        thread.join(END_SECONDS)

    def _run(self, spark: SparkSession) -> None:
        begun = time.monotonic()
        if self._due is None:
            self._due = begun
        try:
            spark.sparkContext.addJobTag(self._tag)
            self._save(session.fix(spark.newSession()), begun)
        except Exception as error:  # noqa: BLE001 - as below
            # Also those of a JVM or a store that has died: none of them ends the job.
            if not self._ended:
                self._due = begun + self._every
                self._observer.not_saved()
                _report(
                    f"warning: no savepoint was written to {self._schedule.place}; the job"
                    f" continues, and tries again in {self._every:g}s: {one_line(str(error))}"
                )

    def _save(self, spark: SparkSession, begun: float) -> None:
        shelf = Shelf(spark, self._schedule.place)
        if self._batch is None and (age := self._continue(shelf)) is not None:
            self._due = begun + self._every - age
            if age < self._every:
                return
        committed = CheckpointFiles(spark, self._job.checkpoint).committed()
        if committed is None:
            self._due = begun + min(self._every, 1)
            return
        self._due = begun + self._every
        if committed == self._batch:
            return  # nothing has changed
        moment = datetime.now(UTC)
        name = name_of(moment)
        found = command.write(spark, self._job.checkpoint, shelf.where(name), self._dsn, None)
        self._batch = found.batch_id
        self._observer.saved(moment.timestamp())
        _report(
            f"savepoint of batch {found.batch_id} in {time.monotonic() - begun:.1f}s:"
            f" {shelf.where(name)}"
        )
        try:
            shelf.prune(self._job.stream, self._schedule.keep, intact=name)
        except Exception as error:  # noqa: BLE001 - as above
            if not self._ended:
                _report(
                    f"warning: older savepoints in {shelf.place} were not removed; the next one"
                    f" removes them: {one_line(str(error))}"
                )

    def _continue(self, shelf: Shelf) -> float | None:
        """Return the age of the newest savepoint that an earlier process wrote, in seconds."""
        newest = next(shelf.kept(self._job.stream), None)
        if newest is None or newest.manifest is None:
            return None
        metadata = CheckpointFiles(shelf.spark, self._job.checkpoint).read("metadata")
        if newest.manifest.query_id in (metadata or ""):
            self._batch = newest.manifest.batch_id
        age = (datetime.now(UTC) - moment_of(newest.name)).total_seconds()
        # A clock that was set back since must not stop them.
        self._observer.saved(moment_of(newest.name).timestamp())
        return max(age, 0.0)


def _report(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the command's own report
