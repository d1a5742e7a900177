"""A key group's values in dictionaries, kept as the operator keeps them in Spark's state."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.spark_app.exposure.schema import BY_HAND_COLUMNS
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator import stored
from holdfast.spark_app.operator.groups import key_group
from holdfast.spark_app.operator.stored import GroupValue, Segment, SegmentKey


@dataclass
class Kept:
    """What is stored of one key group."""

    group: GroupValue = field(default_factory=GroupValue)
    windows: dict[int, str] = field(default_factory=dict)
    ids: dict[SegmentKey, Segment] = field(default_factory=dict)

    def load(self, *, ids: bool = True) -> GroupState:
        """The state; without ids, as it is read for a step without rows."""
        segments = {key: segment.content for key, segment in self.ids.items()} if ids else {}
        return stored.decode_group(
            self.group.settled_until, self.group.merchants, self.windows, segments
        )

    def save(
        self, state: GroupState, absorbed: pa.Table, armed_ms: int | None = None
    ) -> tuple[set[int], set[SegmentKey]]:
        """Store a state; returns the keys of the windows and of the segments that were written."""
        self.group = stored.group_value(state, armed_ms) or GroupValue()
        windows, forgotten = stored.changed_windows(self.load(ids=False), state)
        segments, removed = stored.changed_ids(self.ids, absorbed)
        removed += stored.forgotten_ids(self.ids, forgotten)
        self.windows |= windows
        self.ids |= segments
        for end in forgotten:
            del self.windows[end]
        for key in removed:
            del self.ids[key]
        return set(windows), set(segments)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored."""
        return not (self.windows or self.ids) and self.group == GroupValue()


def content(state: GroupState) -> dict[str, Any]:
    """A state in plain words, without what no person decided; ids in the order of each window."""
    ids: dict[Any, list[tuple[str, str]]] = {}
    for row in state.absorbed.to_pylist():
        ids.setdefault(row["window_end"], []).append((row["merchant_id"], row["event_id"]))
    return {
        "windows": state.windows.to_pylist(),
        "merchants": [
            each
            if each["hand_number"] is not None
            else {name: each[name] for name in each if name not in BY_HAND_COLUMNS}
            for each in state.merchants.to_pylist()
        ],
        "ids": ids,
        "settled": state.settled_until_us,
    }


def split(state: GroupState, numbers: Sequence[int]) -> dict[int, GroupState]:
    """Return the state of each key group; `numbers` are those of `groups.group_numbers`.

    Every group has the settled frontier, also one without a merchant.
    """

    def of(table: pa.Table, number: int) -> pa.Table:
        owners = [key_group(name, numbers) for name in table["merchant_id"].to_pylist()]
        return table.filter(pa.array([owner == number for owner in owners], pa.bool_()))

    return {
        number: GroupState(
            windows=of(state.windows, number),
            merchants=of(state.merchants, number),
            absorbed=of(state.absorbed, number),
            settled_until_us=state.settled_until_us,
        )
        for number in numbers
    }
