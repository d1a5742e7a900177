"""The idle clock: after a timeout without events it writes a tick, which the next batch reads.

A tick needs sources that are known to be silent, not one that has a backlog or cannot be read:
Spark must have found no new data when it last asked all of them, and every directory must be there.
Spark itself reads a directory that has disappeared as one without files.

Every row of a source starts the timeout anew, also a refused one, and so does a tick: while nothing
comes there is one tick in each timeout, and the watermark follows the clock.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from spark_app.checkpoint.files import CheckpointFiles
from spark_app.input import ticks
from spark_app.input.missing_files import FileGone
from spark_app.input.sources import Files
from spark_app.operator.job import Job

_WAITING = ("Waiting for next trigger", "Waiting for data to arrive")
"""What Spark says between two triggers, and not before the first one."""


class IdleClock:
    """Decides when a tick is due. Call `observe` a few times a second."""

    def __init__(
        self,
        timeout_s: float,
        write: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write` writes a tick, or raises when a source cannot be reached."""
        self._timeout_s = timeout_s
        self._write = write
        self._clock = clock
        self._since = clock()

    def observe(self, status: Mapping[str, Any], rows: int) -> None:
        """Take Spark's status of the query, and how many rows the batches recorded by then had.

        Rows since the last call; ask for the status first, so that no batch is missed between.
        """
        if rows or status["isDataAvailable"]:
            self._since = self._clock()
        elif status["message"] in _WAITING and self._clock() - self._since >= self._timeout_s:
            self._write()
            self._since = self._clock()


def idle_clock(spark: SparkSession, job: Job) -> IdleClock | None:
    """Return the idle clock of a claimed job; None where it is disabled."""
    if not job.idle_timeout_ms:
        return None
    files = CheckpointFiles(spark, job.checkpoint)
    paths = [source.path for source in job.sources if isinstance(source, Files)]

    def write() -> None:
        _require_reachable(files, paths)
        decided_ms = time.time_ns() // 1_000_000
        text = ticks.to_json(decided_ms, job.idle_timeout_ms)
        files.write(ticks.file_name(decided_ms), text)

    return IdleClock(job.idle_timeout_ms / 1000, write)


def _require_reachable(files: CheckpointFiles, paths: Sequence[str]) -> None:
    for path in paths:
        if not files.is_there(path):
            raise FileGone(
                f"the directory {path.removeprefix('file:')} is gone, so nobody knows whether"
                " events are waiting in it. Nothing is lost, and no window was closed because of"
                " the silence: put it back and start again"
            )
