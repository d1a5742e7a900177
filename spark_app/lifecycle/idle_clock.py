"""The idle clock: after a timeout without events it writes a tick, which the next batch reads.

A tick needs sources that are known to be silent, not one that has a backlog or cannot be read:
Spark must have found no new data when it last asked all of them, and every directory must be there.
Spark itself reads a directory that has disappeared as one without files. The broker of a topic is
asked once more: it must answer, and have no record that is not in a plan.

Every row of a source restarts the timeout, also a refused one, and so does a tick: while nothing
comes there is one tick in each timeout, and the watermark follows the clock.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.input import ticks
from holdfast.spark_app.input.missing_files import FileGone
from holdfast.spark_app.input.sources import Files
from holdfast.spark_app.lifecycle.topic_watch import TopicWatch
from holdfast.spark_app.operator.job import Job

_WAITING = ("Waiting for next trigger", "Waiting for data to arrive")
"""What Spark says between two triggers, and not before the first one."""


class IdleClock:
    """Decides when a tick is due. Call `ask` and then `observe`, a few times a second."""

    def __init__(
        self,
        timeout_s: float,
        write: Callable[[int], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write` gets the moment of `ask` in milliseconds since 1970.

        It writes a tick, or raises when a source cannot be reached.
        """
        self._timeout_s = timeout_s
        self._write = write
        self._clock = clock
        self._since = clock()
        self._asked_ms = 0
        self._status: Mapping[str, Any] = {}

    def ask(self, query: StreamingQuery) -> None:
        """Take the status of the query, before the reports of its batches: none is missed then."""
        self._asked_ms = time.time_ns() // 1_000_000
        self._status = query.status

    def observe(self, rows: int) -> None:
        """Take how many rows the batches had that were reported since the last call."""
        if rows or self._status["isDataAvailable"]:
            self._since = self._clock()
        elif self._status["message"] in _WAITING and self._silent_s() >= self._timeout_s:
            self._write(self._asked_ms)
            self._since = self._clock()

    def _silent_s(self) -> float:
        return self._clock() - self._since


def idle_clock(
    spark: SparkSession, job: Job, interval_ms: int, watched: TopicWatch | None = None
) -> IdleClock | None:
    """Return the idle clock of a claimed job; None where it is disabled.

    `watched` has the job's topics. The latest trigger of a query that waits began at most
    `interval_ms` before.
    """
    if not job.idle_timeout_ms:
        return None
    files = CheckpointFiles(spark, job.checkpoint)
    paths = [source.path for source in job.sources if isinstance(source, Files)]

    def write(asked_ms: int) -> None:
        _require_reachable(files, paths)
        if watched is not None and not watched.is_read():
            return
        known_ms = asked_ms - interval_ms
        name = ticks.file_name(known_ms, job.idle_timeout_ms)
        files.write(name, ticks.to_json(known_ms, job.idle_timeout_ms))

    return IdleClock(job.idle_timeout_ms / 1000, write)


def _require_reachable(files: CheckpointFiles, paths: Sequence[str]) -> None:
    for path in paths:
        if not files.path_exists(path):
            raise FileGone(
                f"the directory {path.removeprefix('file:')} is gone, so nobody knows whether"
                " events are waiting in it. Nothing is lost, and no window was closed because of"
                " the silence: put it back and start again"
            )
