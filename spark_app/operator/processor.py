"""The stateful operator: the exposure step, one key group at a time.

`stored` defines the layout of a group's state. A group with rows costs three reads, and a write for
each changed frame; a group called by its timer two reads, because without rows no id can repeat.
Only the step decides what is due; a timer only makes Spark call a group without rows.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import ROWS
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import StepOutput, step
from holdfast.spark_app.operator import initial_state, stored
from holdfast.spark_app.operator.blobs import Kind, from_blob, to_blob
from holdfast.spark_app.operator.pack import freeze_imports
from holdfast.spark_app.operator.stored import GroupValue, Segment, SegmentKey

_DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"

# As types: for a schema as text, each task of each batch would ask the JVM to parse it.
_GROUP = (
    StructType()
    .add("armed_ms", LongType())
    .add("settled_until", LongType())
    .add("merchants", StringType())
)
_WINDOWS_KEY = StructType().add("window_end", LongType())
_WINDOWS = StructType().add("content", StringType())
_IDS_KEY = StructType().add("window_end", LongType()).add("piece", IntegerType())
"""`piece` is the number of a segment."""
_IDS = StructType().add("level", IntegerType()).add("content", StringType())


class KeyGroupProcessor(StatefulProcessor):
    """The step as a processor of Spark."""

    def __init__(self, policy: Policy, settings: Settings) -> None:
        self._policy = policy
        self._settings = settings

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _silence_driver_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._group: ValueState = handle.getValueState(stored.GROUP, _GROUP)
        self._windows: MapState = handle.getMapState(stored.WINDOWS, _WINDOWS_KEY, _WINDOWS)
        self._ids: MapState = handle.getMapState(stored.IDS, _IDS_KEY, _IDS)

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark passes it by position
        initialState: Row,  # noqa: N803 - Spark's name
        timerValues: TimerValues,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Store one row of `initial_state`; called for each row of a group, in any order."""
        row = initialState
        if row.window_end is None:
            self._group.update((row.armed_ms, row.settled_until, row.content))
            self._arm(None, row.armed_ms, None)
        elif row.piece is None:
            self._windows.updateValue((row.window_end,), (row.content,))
        else:
            self._ids.updateValue((row.window_end, row.piece), (row.level, row.content))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark passes it by name
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        batches: list[pa.RecordBatch] = []
        for row in rows:
            if row.refused is not None:
                yield Row(kind=Kind.REFUSED.value, blob=bytes(row.refused))
            if row.events is not None:
                batches.append(from_blob(bytes(row.events), ROWS))
        if batches:
            table = pa.Table.from_batches(batches, ROWS)
            yield from self._advance(table, _watermark_us(timerValues), None)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark passes it by name
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._advance(ROWS.empty_table(), _watermark_us(timerValues), fired_ms)

    def close(self) -> None:
        """Called at the end of each task; the state belongs to Spark."""
        freeze_imports()

    def _advance(
        self, rows: pa.Table, watermark_us: int | None, fired_ms: int | None
    ) -> Iterator[Row]:
        group = GroupValue(*(self._group.get() or ()))
        windows = {end: content for (end,), (content,) in self._windows.iterator()}
        ids = None if fired_ms is not None else self._read_ids()
        before = stored.decode_group(
            group.settled_until,
            group.merchants,
            windows,
            {key: segment.content for key, segment in (ids or {}).items()},
        )

        state, output = step(before, rows, watermark_us, self._policy, self._settings)

        due_ms = initial_state.due_ms(state, watermark_us, self._settings)
        self._keep_group(group, state, due_ms)
        forgotten = self._keep_windows(before, state)
        self._keep_ids(ids, output.absorbed, forgotten)
        self._arm(group.armed_ms, due_ms, fired_ms)
        yield from _blobs(output)

    def _read_ids(self) -> dict[SegmentKey, Segment]:
        return {SegmentKey(*key): Segment(*segment) for key, segment in self._ids.iterator()}

    def _keep_group(self, before: GroupValue, state: GroupState, due_ms: int | None) -> None:
        after = stored.group_value(state, due_ms)
        if after is None:
            if before != GroupValue():
                self._group.clear()
        elif after != before:
            self._group.update(tuple(after))

    def _keep_windows(self, before: GroupState, state: GroupState) -> list[int]:
        """Write the changed windows; return the ends of the forgotten ones."""
        written, forgotten = stored.changed_windows(before, state)
        for end, content in written.items():
            self._windows.updateValue((end,), (content,))
        for end in forgotten:
            self._windows.removeKey((end,))
        return forgotten

    def _keep_ids(
        self, before: dict[SegmentKey, Segment] | None, absorbed: pa.Table, forgotten: list[int]
    ) -> None:
        written, removed = stored.changed_ids(before or {}, absorbed)
        if forgotten:
            keys = self._ids.keys() if before is None else before
            removed += stored.forgotten_ids(keys, forgotten)
        for key, segment in written.items():
            self._ids.updateValue(tuple(key), tuple(segment))
        for key in removed:
            self._ids.removeKey(tuple(key))

    def _arm(self, armed_ms: int | None, due_ms: int | None, fired_ms: int | None) -> None:
        """Keep one timer registered; Spark itself removes the one that fired, after this call."""
        if armed_ms == due_ms:
            return
        if armed_ms is not None and armed_ms != fired_ms:
            self._handle.deleteTimer(armed_ms)
        if due_ms is not None:
            self._handle.registerTimer(due_ms)


def _watermark_us(timer_values: TimerValues) -> int | None:
    """Return the watermark; None while Spark reports 1970, before the first plausible time."""
    watermark_ms = timer_values.getCurrentWatermarkInMs()
    return watermark_ms * MILLISECOND_US if watermark_ms > 0 else None


def _silence_driver_worker() -> None:
    """Discard the stdout of the process in which Spark reads the state's schema at each start.

    PySpark prints its steps there, and the driver's stderr would show them.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DRIVER_WORKER:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _blobs(output: StepOutput) -> Iterator[Row]:
    for kind, table in (
        (Kind.WINDOWS, output.windows),
        (Kind.DECISIONS, output.decisions),
        (Kind.LATE, output.late),
    ):
        if table.num_rows:
            yield Row(kind=kind.value, blob=to_blob(table))
