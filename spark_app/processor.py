"""The stateful operator: the exposure step, one key group at a time.

A group's state is one value: what the step returned, as bytes, and the one timer that is armed. So
a batch costs a group one read and at most one write, however many merchants and windows are in it.
What is due is decided by the step alone; a timer only makes Spark call a group that has no rows.
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
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from spark_app.blobs import Kind, from_blob, to_blob
from spark_app.exposure.policy import Policy
from spark_app.exposure.schema import ROWS
from spark_app.exposure.settings import MILLISECOND_US, Settings
from spark_app.exposure.state import GroupState
from spark_app.exposure.step import StepOutput, next_timer_us, step

STATE_NAME = "group"
STATE_DDL = "armed_ms bigint, content binary"

_DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"


class KeyGroupProcessor(StatefulProcessor):
    """The step as Spark calls it."""

    def __init__(self, policy: Policy, settings: Settings) -> None:
        self._policy = policy
        self._settings = settings

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _silence_driver_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._value: ValueState = handle.getValueState(STATE_NAME, STATE_DDL)

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
            yield from self._advance(table, timerValues.getCurrentWatermarkInMs(), None)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002 - Spark passes it by name
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        yield from self._advance(ROWS.empty_table(), watermark_ms, fired_ms)

    def close(self) -> None:
        """Nothing to give back: the state belongs to Spark."""

    def _advance(self, rows: pa.Table, watermark_ms: int, fired_ms: int | None) -> Iterator[Row]:
        # Before the first row with a plausible time, Spark's watermark is 1970.
        watermark_us = watermark_ms * MILLISECOND_US if watermark_ms > 0 else None
        armed_ms, content = self._value.get() or (None, None)
        state = GroupState.empty() if content is None else GroupState.from_bytes(bytes(content))

        state, output = step(state, rows, watermark_us, self._policy, self._settings)

        due_us = next_timer_us(state, watermark_us, self._settings)
        due_ms = None if due_us is None else -(-due_us // MILLISECOND_US)
        self._store(state, armed_ms, due_ms, content)
        self._arm(armed_ms, due_ms, fired_ms)
        yield from _blobs(output)

    def _store(
        self, state: GroupState, armed_ms: int | None, due_ms: int | None, before: bytes | None
    ) -> None:
        if not state.merchants.num_rows:
            if before is not None:
                self._value.clear()
            return
        content = state.to_bytes()
        if content != before or due_ms != armed_ms:
            self._value.update((due_ms, content))

    def _arm(self, armed_ms: int | None, due_ms: int | None, fired_ms: int | None) -> None:
        """Keep one timer; Spark itself takes away the one that fired, after we return."""
        if armed_ms == due_ms:
            return
        if armed_ms is not None and armed_ms != fired_ms:
            self._handle.deleteTimer(armed_ms)
        if due_ms is not None:
            self._handle.registerTimer(due_ms)


def _silence_driver_worker() -> None:
    """Drop the stdout of the process in which Spark, once a start, asks for the state's schema.

    PySpark narrates its steps there, and the driver's stderr would show them to a person.
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
