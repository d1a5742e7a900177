"""One line on stderr for each batch: `batch=7 rows=1000 entries=2 ... watermark=...`."""

import sys

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from sink.writer import Replayed, Written
from spark_app.batches import Batches

_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


class Progress:
    """Prints the batches that Spark has recorded since it was asked last."""

    def __init__(self, query: StreamingQuery, batches: Batches) -> None:
        self._query = query
        self._batches = batches
        self._shown = -1

    def show(self) -> None:
        """Print a line for each new batch, oldest first."""
        latest = self._query.lastProgress
        if latest is None or latest.batchId <= self._shown:
            return
        for progress in self._query.recentProgress:
            if progress.batchId > self._shown:
                self._shown = progress.batchId
                outcome = self._batches.outcome(progress.batchId)
                if outcome is not None:
                    print(line(progress, outcome), file=sys.stderr, flush=True)  # noqa: T201


def line(progress: StreamingQueryProgress, outcome: Written | Replayed) -> str:
    """Describe one batch as `name=value` pairs."""
    counts = outcome.counts
    watermark = progress.eventTime.get("watermark", _NO_WATERMARK)
    values = {
        "batch": progress.batchId,
        "outcome": type(outcome).__name__.lower(),
        "rows": progress.numInputRows,
        "entries": counts.entries,
        "suppressed": counts.suppressed,
        "duplicates": counts.duplicates,
        "quarantined": counts.quarantined,
        "watermark": "none" if watermark == _NO_WATERMARK else watermark,
        "ms": progress.durationMs.get("triggerExecution", 0),
    }
    return " ".join(f"{name}={value}" for name, value in values.items())
