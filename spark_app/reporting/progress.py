"""One line on stderr for each batch: `batch=7 rows=1000 entries=2 ... watermark=...`."""

import sys

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import counted
from holdfast.spark_app.lifecycle.batches import Batches
from holdfast.spark_app.reporting.batch_counts import FinishedBatch
from holdfast.spark_app.reporting.metrics import Metrics
from holdfast.spark_app.reporting.query_progress import (
    ahead_seconds,
    batches_after,
    dropped_rows,
    event_rows,
    tick_rows,
    waits,
    watermark,
)


class Progress:
    """Prints and measures the batches that Spark has recorded since the last call."""

    def __init__(self, query: StreamingQuery, batches: Batches, metrics: Metrics) -> None:
        self._query = query
        self._batches = batches
        self._metrics = metrics
        self._seen = ""
        self._shown = -1
        self.waits_since_start = False
        """Whether the query has asked its sources for new data, and has not run a batch."""

    def show(self) -> int:
        """Print a line for each new batch, oldest first; return how many rows they read.

        Raises CommandError when Spark itself has dropped rows, which must never happen.
        """
        latest = self._query.lastProgress
        if latest is None or latest.timestamp == self._seen:
            return 0
        self._seen = latest.timestamp
        rows = 0
        for progress in batches_after(self._query, self._shown):
            self._shown = progress.batchId
            rows += progress.numInputRows
            self._metrics.recorded(progress)
            done = self._batches.take(progress.batchId)
            if done is not None:
                if ahead_seconds(progress):
                    self._metrics.late_ahead(done)
                print(line(progress, done), file=sys.stderr, flush=True)  # noqa: T201
            refuse_dropped_rows(progress)
        self.waits_since_start = self._shown < 0 and waits(latest)
        return rows


def refuse_dropped_rows(progress: StreamingQueryProgress) -> None:
    """Raise CommandError when Spark's own late filter dropped rows before the step."""
    dropped = dropped_rows(progress)
    if dropped:
        raise CommandError(
            f"Spark dropped {counted(dropped, 'row')} of batch {progress.batchId} behind its"
            " watermark, before the exposure step could judge and record them. The events are"
            " still in their files; the batch is written without them. The job stops so that no"
            " more are dropped: a change of the job lets the watermark column reach the operator."
            " Run the previous version.",
            code="rows_dropped",
        )


def line(progress: StreamingQueryProgress, done: FinishedBatch) -> str:
    """Describe one batch as `name=value` pairs."""
    counts, before_sink = done.outcome.counts, done.counts
    values = {
        "batch": progress.batchId,
        "outcome": type(done.outcome).__name__.lower(),
        "rows": event_rows(progress),
        "entries": counts.entries,
        "suppressed": counts.suppressed,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "windows": before_sink.windows,
        "late": before_sink.late["late"],
        "future_dated": before_sink.late["future_dated"],
        "repeated": before_sink.late["duplicate"],
        "settled": before_sink.late["settled"],
        "watermark": "none" if watermark(progress) is None else progress.eventTime["watermark"],
        "ms": progress.durationMs.get("triggerExecution", 0),
    }
    if ahead := ahead_seconds(progress):
        values["ahead"] = f"{ahead:.0f}s"
    if idle := tick_rows(progress):
        values["idle"] = idle
    return " ".join(f"{name}={value}" for name, value in values.items())
