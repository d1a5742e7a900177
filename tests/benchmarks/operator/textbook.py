"""One state per merchant, as in the guides for `transformWithState` in Python.

One map from window end to the sum and the ids absorbed in it, one timer for each window. As in the
built-in case there is no validation, hold, decision or correction: a window is emitted once, when
the cutoff has passed, and forgotten with that.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from tests.benchmarks.operator.plain import create, files
from tests.benchmarks.operator.rules import CUTOFF_S, DELAY_S, WINDOW_S

__all__ = ["create", "run", "windows"]

_CUTOFF_MS = CUTOFF_S * 1000
_OUTPUT = "merchant_id string, window_end_ms bigint, exposure_minor bigint"


class Exposure(StatefulProcessor):
    """The exposure of one merchant."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._windows = handle.getMapState(
            "windows", "window_end_ms bigint", "exposure_minor bigint, ids array<string>"
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark passes it by name
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        changed: dict[int, tuple[int, set[str]]] = {}
        for row in rows:
            end = row.window_end_ms
            if end + _CUTOFF_MS <= watermark_ms:
                continue
            exposure, ids = changed.get(end) or self._read(end)
            if row.event_id not in ids:
                exposure += row.amount_minor
                ids.add(row.event_id)
            changed[end] = exposure, ids
        for end, (exposure, ids) in changed.items():
            self._windows.updateValue((end,), (exposure, sorted(ids)))
        return iter([])

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name, passed by it
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        end = expiredTimerInfo.getExpiryTimeInMs() - _CUTOFF_MS
        exposure, _ = self._windows.getValue((end,))
        self._windows.removeKey((end,))
        yield Row(merchant_id=key[0], window_end_ms=end, exposure_minor=exposure)

    def _read(self, end: int) -> tuple[int, set[str]]:
        found = self._windows.getValue((end,))
        if found is None:
            self._handle.registerTimer(end + _CUTOFF_MS)
            return 0, set()
        exposure, ids = found
        return exposure, set(ids)


def run(
    spark: SparkSession, path: str, checkpoint: str, each: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the query over the files that are there, one a batch."""
    end = F.window("occurred_at", f"{WINDOW_S} seconds")["end"]
    return (
        files(spark, path)
        .withWatermark("occurred_at", f"{DELAY_S} seconds")
        .select(
            "merchant_id", "event_id", "amount_minor", F.unix_millis(end).alias("window_end_ms")
        )
        .groupBy("merchant_id")
        .transformWithState(
            statefulProcessor=Exposure(),
            outputStructType=_OUTPUT,
            outputMode="Update",
            timeMode="EventTime",
        )
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(each)
        .trigger(availableNow=True)
        .start()
    )


def windows(batches: list[pa.Table]) -> pa.Table:
    """The emitted windows: merchant_id, window_end, exposure_minor."""
    return pa.concat_tables(batches)
