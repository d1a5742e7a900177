"""Spark's progress reports of a query."""

from datetime import datetime

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark_app.input import ticks

_TICKS = f"/{ticks.FOLDER}]"
"""The end of Spark's description of their source."""

_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


def batches_after(query: StreamingQuery, batch_id: int) -> list[StreamingQueryProgress]:
    """Return the batches after one that Spark has recorded, the oldest first.

    A query that waits for data also reports, under the id of the next batch.
    """
    latest = query.lastProgress
    # Spark writes and PySpark reads every report that is kept, a hundred of them.
    if latest is None or latest.batchId < batch_id + 1 + waits(latest):
        return []
    if latest.batchId == batch_id + 1 and not waits(latest):
        return [latest]
    return [
        progress
        for progress in query.recentProgress
        if progress.batchId > batch_id and not waits(progress)
    ]


def waits(progress: StreamingQueryProgress) -> bool:
    """Return whether a report is of a query that waits for data."""
    return "addBatch" not in progress.durationMs


def is_recorded(query: StreamingQuery, batch_id: int) -> bool:
    """Return whether Spark has recorded a batch."""
    latest = query.lastProgress
    # Reports of a waiting query push those of its batches out of the list.
    waits_behind_it = latest is not None and latest.batchId > batch_id
    return waits_behind_it or bool(batches_after(query, batch_id - 1))


def started_at(progress: StreamingQueryProgress) -> datetime:
    """Return when the batch began, by the clock of the driver."""
    return datetime.fromisoformat(progress.timestamp)


def tick_rows(progress: StreamingQueryProgress) -> int:
    """Return how many ticks of the idle clock the batch read."""
    return sum(
        source.numInputRows for source in progress.sources if source.description.endswith(_TICKS)
    )


def event_rows(progress: StreamingQueryProgress) -> int:
    """Return how many rows of events the batch read."""
    return progress.numInputRows - tick_rows(progress)


def watermark(progress: StreamingQueryProgress) -> datetime | None:
    """Return the watermark of the batch; None before the first one."""
    text = progress.eventTime.get("watermark", _NO_WATERMARK)
    return None if text == _NO_WATERMARK else datetime.fromisoformat(text)


def ahead_seconds(progress: StreamingQueryProgress) -> float:
    """Return how far the watermark of the batch is ahead of its start; 0 where it is not.

    Only an event dated ahead of the clock moves it there, and events on time are late behind it.
    """
    reached = watermark(progress)
    return 0.0 if reached is None else max(0.0, (reached - started_at(progress)).total_seconds())


def dropped_rows(progress: StreamingQueryProgress) -> int:
    """Return how many rows Spark's own late filter dropped before the operator."""
    return sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)


def checkpoint_phases(progress: StreamingQueryProgress) -> dict[str, float]:
    """Return the seconds of each phase of the batch's checkpoint.

    `plan` writes the batch's plan, `state` commits the state stores and `commit` records the batch;
    `total` is their sum. `upload` is the part of `state` that writes the changelogs, and `load` the
    time in which the stores were loaded before the batch. Times of the state are those of a mean
    partition: Spark reports their sum, and partitions work side by side.
    """
    plan = progress.durationMs.get("walCommit", 0) / 1000
    commit = progress.durationMs.get("commitOffsets", 0) / 1000
    state, upload, load = 0.0, 0.0, 0.0
    for operator in progress.stateOperators:
        partitions = 1000 * max(operator.numShufflePartitions, 1)
        details = operator.customMetrics
        state += operator.commitTimeMs / partitions
        upload += details.get("rocksdbCommitFileSyncLatencyMs", 0) / partitions
        load += details.get("rocksdbLoadLatencyMs", 0) / partitions
    return {
        "plan": plan,
        "load": load,
        "state": state,
        "upload": upload,
        "commit": commit,
        "total": plan + state + commit,
    }
