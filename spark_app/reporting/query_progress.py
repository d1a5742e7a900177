"""What Spark reports of its batches, read with care."""

from datetime import datetime

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


def batches_after(query: StreamingQuery, batch_id: int) -> list[StreamingQueryProgress]:
    """Return the batches after one that Spark has recorded, the oldest first.

    A query that waits for data reports now and then too, under the id of the batch to come.
    """
    return [
        progress
        for progress in query.recentProgress
        if progress.batchId > batch_id and "addBatch" in progress.durationMs
    ]


def is_recorded(query: StreamingQuery, batch_id: int) -> bool:
    """Whether Spark has recorded a batch."""
    latest = query.lastProgress
    # Reports of a query that waits push those of its batches out of the list.
    waits_behind_it = latest is not None and latest.batchId > batch_id
    return waits_behind_it or bool(batches_after(query, batch_id - 1))


def started_at(progress: StreamingQueryProgress) -> datetime:
    """When the batch began, by the clock of the driver."""
    return datetime.fromisoformat(progress.timestamp)


def watermark(progress: StreamingQueryProgress) -> datetime | None:
    """Return the W of the batch; None as long as there is none."""
    text = progress.eventTime.get("watermark", _NO_WATERMARK)
    return None if text == _NO_WATERMARK else datetime.fromisoformat(text)


def dropped_rows(progress: StreamingQueryProgress) -> int:
    """Return how many rows Spark's own late filter kept from the operator."""
    return sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
