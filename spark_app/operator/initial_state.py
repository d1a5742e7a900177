"""Spark's initial state of the operator: the values that each key group stores from the start.

    key_group, armed_ms, settled_until, content     the value of the group
    key_group, window_end, content                  the windows of that end
    key_group, window_end, piece, level, content    some of the event ids absorbed in it

Spark hands one row after another to the operator, in any order. So each row is complete, the timer
of a group is computed here, and a large group is many rows.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.exposure.step import next_timer_us
from holdfast.spark_app.operator import stored

COLUMNS: Final = pa.schema(
    {
        "key_group": pa.int32(),
        "armed_ms": pa.int64(),
        "settled_until": pa.int64(),
        "window_end": pa.int64(),
        "piece": pa.int32(),
        "level": pa.int32(),
        "content": pa.string(),
    }
)

DDL: Final = (
    "key_group int, armed_ms bigint, settled_until bigint, window_end bigint, piece int,"
    " level int, content string"
)

IDS_PER_ROW: Final = 200_000
"""About 8 MB of ids. Spark passes a row to Python as one value."""


def due_ms(state: GroupState, watermark_us: int | None, settings: Settings) -> int | None:
    """Return the time of a group's timer, in milliseconds; None where it needs none."""
    due_us = next_timer_us(state, watermark_us, settings)
    return None if due_us is None else -(-due_us // MILLISECOND_US)


def rows(number: int, state: GroupState, watermark_us: int | None, settings: Settings) -> pa.Table:
    """Return a key group's rows of `COLUMNS`; none for an empty group.

    `watermark_us` is that of the batch after which the group has this state.
    """
    rows_of_group = [{"key_group": number, **row} for row in _rows(state, watermark_us, settings)]
    return pa.Table.from_pylist(rows_of_group, schema=COLUMNS)


def _rows(
    state: GroupState, watermark_us: int | None, settings: Settings
) -> Iterator[dict[str, Any]]:
    group = stored.group_value(state, due_ms(state, watermark_us, settings))
    if group is None:
        return
    yield {
        "armed_ms": group.armed_ms,
        "settled_until": group.settled_until,
        "content": group.merchants,
    }
    windows, _ = stored.changed_windows(GroupState.empty(), state)
    for end, content in windows.items():
        yield {"window_end": end, "content": content}
    for key, segment in stored.begun_ids(state.absorbed, IDS_PER_ROW).items():
        yield {
            "window_end": key.window_end,
            "piece": key.segment,
            "level": segment.level,
            "content": segment.content,
        }
