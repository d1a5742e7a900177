"""A key group's state as the values that Spark stores, and back; does not import Spark.

    group    one value            armed timer, settled end, merchants (a frame of `codec`)
    windows  window end           -> the windows of that end (a frame)
    ids      window end, segment  -> level, some of the event ids absorbed in it (a frame)

A frame is stored as text, in base64: Spark passes binary values to Python byte by byte and a text
at once, which matters with much state. A frame is written only when it changed. Ids are appended as
segments (`id_segments`) and leave with their window. They are read only where rows may repeat one
of them.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.codec import WINDOW_END, decode_part, encode_part
from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.schema import (
    STATE_ABSORBED,
    STATE_MERCHANTS,
    STATE_WINDOWS,
    TIMESTAMP,
    integers,
    one_chunk,
)
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator.id_segments import plan_segment

GROUP: Final = "group"
WINDOWS: Final = "windows"
IDS: Final = "ids"


_BEGUN: Final = 8
"""A level that a window reaches after 8^8 batches."""


class GroupValue(NamedTuple):
    """The value of `group`; times in milliseconds (the timer) and microseconds."""

    armed_ms: int | None = None
    settled_until: int | None = None
    merchants: str | None = None


class SegmentKey(NamedTuple):
    """The key of `ids`: a window end in microseconds, and a number that ascends with time."""

    window_end: int
    segment: int


class Segment(NamedTuple):
    """The value of `ids`."""

    level: int
    content: str


def decode_group(
    settled_until: int | None,
    merchants: str | None,
    windows: Mapping[int, str],
    ids: Mapping[tuple[int, int], str],
) -> GroupState:
    """Return the state of the stored values; `ids` may be empty for a step without rows.

    Raises StateTooNew or StateError.
    """
    return GroupState(
        windows=_with_ends("windows", STATE_WINDOWS, ((e, windows[e]) for e in sorted(windows))),
        merchants=(
            STATE_MERCHANTS.empty_table() if merchants is None else _table("merchants", merchants)
        ),
        absorbed=_with_ends("absorbed", STATE_ABSORBED, ((k[0], ids[k]) for k in sorted(ids))),
        settled_until_us=settled_until,
    )


_PART_OF = {GROUP: "merchants", WINDOWS: "windows", IDS: "absorbed"}


def decode_value(kind: str, content: str) -> pa.Table:
    """Return the rows of one stored value; raises StateTooNew or StateError."""
    return _table(_PART_OF[kind], content)


def group_value(state: GroupState, armed_ms: int | None) -> GroupValue | None:
    """Return the value of `group`; None for an empty group, which is forgotten."""
    if state.is_empty:
        return None
    merchants = _text("merchants", state.merchants) if state.merchants.num_rows else None
    return GroupValue(armed_ms, state.settled_until_us, merchants)


def changed_windows(before: GroupState, after: GroupState) -> tuple[dict[int, str], list[int]]:
    """Return the frames of `windows` to write, and the window ends to remove."""
    old, new = _windows_by_end(before), _windows_by_end(after)
    written = {
        end: _text("windows", table)
        for end, table in new.items()
        if end not in old or not table.equals(old[end])
    }
    return written, [end for end in old if end not in new]


def changed_ids(
    stored: Mapping[SegmentKey, Segment], absorbed: pa.Table
) -> tuple[dict[SegmentKey, Segment], list[SegmentKey]]:
    """Return the segments to write for new ids (`STATE_ABSORBED`), and those to remove."""
    written: dict[SegmentKey, Segment] = {}
    removed: list[SegmentKey] = []
    for end, new in _ids_by_end(absorbed):
        mine = {segment: value for (of, segment), value in stored.items() if of == end}
        where = plan_segment({segment: value.level for segment, value in mine.items()})
        parts = [_table("absorbed", mine[segment].content) for segment in where.merged]
        frame = _text("absorbed", pa.concat_tables([*parts, new]))
        written[SegmentKey(end, where.segment)] = Segment(where.level, frame)
        removed += [
            SegmentKey(end, segment) for segment in where.merged if segment != where.segment
        ]
    return written, removed


def begun_ids(absorbed: pa.Table, most: int) -> dict[SegmentKey, Segment]:
    """Return the first segments of a group that begins with ids; each has `most` ids or fewer.

    Their levels descend, and are above those that batches fill, so no later segment is merged with
    one of these.
    """
    segments: dict[SegmentKey, Segment] = {}
    for end, ids in _ids_by_end(absorbed):
        starts = range(0, ids.num_rows, most)
        for number, start in enumerate(starts):
            frame = _text("absorbed", own_names(ids.slice(start, most)))
            segments[SegmentKey(end, number)] = Segment(_BEGUN + len(starts) - number, frame)
    return segments


def forgotten_ids(keys: Iterable[tuple[int, int]], ends: Iterable[int]) -> list[SegmentKey]:
    """Return the segments of the windows with these ends."""
    gone = frozenset(ends)
    return [SegmentKey(*key) for key in keys if key[0] in gone]


def _windows_by_end(state: GroupState) -> dict[int, pa.Table]:
    ends = integers(state.windows[WINDOW_END])
    distinct, starts = np.unique(ends, return_index=True)
    bounds = [*starts.tolist(), len(ends)]
    content = state.windows.drop_columns(WINDOW_END)
    slices = [content.slice(start, stop - start) for start, stop in pairwise(bounds)]
    return dict(zip(distinct.tolist(), slices, strict=True))


def _ids_by_end(absorbed: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    ends = integers(absorbed[WINDOW_END])
    content = absorbed.drop_columns(WINDOW_END)
    for end in np.unique(ends).tolist():
        mine = ends == end
        yield end, content if mine.all() else content.filter(pa.array(mine))


def _with_ends(name: str, schema: pa.Schema, frames: Iterable[tuple[int, str]]) -> pa.Table:
    """Return one table of many frames, with the window end of each as a column again."""
    place = schema.get_field_index(WINDOW_END)
    field = schema.field(place)
    tables = []
    for end, frame in frames:
        content = _table(name, frame)
        ends = pa.repeat(pa.scalar(end, TIMESTAMP), content.num_rows)
        tables.append(content.add_column(place, field, ends))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _text(name: str, table: pa.Table) -> str:
    return b64encode(encode_part(name, table)).decode("ascii")


def _table(name: str, text: str) -> pa.Table:
    try:
        frame = b64decode(text, validate=True)
    except ValueError:
        # Not a frame either: the codec refuses it.
        frame = text.encode()
    return decode_part(name, frame)


# The states of key groups as one, for any groups that it is distributed over next; pure.
#
# The rules of the exposure step are per merchant, so the grouping affects no decision: a group is
# only the unit that Spark stores and calls. Timers are not part of a state: the caller computes
# them from each new state, with `exposure.step.next_timer_us`.


def combined(states: Iterable[GroupState]) -> GroupState:
    """Return the states of key groups of one checkpoint, after the same batch, as one state.

    The ids of a group keep their order. The settled frontier is the latest one: a stream has one,
    and a group without it has already passed it.

    Raises StateError for a merchant that is in two of the states.
    """
    parts = list(states) or [GroupState.empty()]
    merchants = pa.concat_tables(part.merchants for part in parts).sort_by("merchant_id")
    names = one_chunk(merchants["merchant_id"])
    repeated = names[1:].filter(pc.equal(names[1:], names[:-1]))
    if len(repeated):
        raise StateError(
            f"Merchant {repeated[0]} is in the state of two key groups. Nothing was written;"
            " restore the checkpoint from a copy, or start from a new one and adopt it."
        )
    windows = pa.concat_tables(part.windows for part in parts)
    settled = [p.settled_until_us for p in parts if p.settled_until_us is not None]
    return GroupState(
        windows=windows.sort_by([("window_end", "ascending"), ("merchant_id", "ascending")]),
        merchants=merchants,
        absorbed=pa.concat_tables(part.absorbed for part in parts),
        settled_until_us=max(settled, default=None),
    )


def own_names(absorbed: pa.Table) -> pa.Table:
    """Return ids whose dictionary has the merchants of these ids only, not those of all groups."""
    place = absorbed.schema.get_field_index("merchant_id")
    names = one_chunk(absorbed["merchant_id"]).cast(pa.string()).dictionary_encode()
    return absorbed.set_column(place, STATE_ABSORBED.field(place), names)
