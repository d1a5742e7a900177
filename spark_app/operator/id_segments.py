"""Which stored segments of a window's event ids are merged when another segment is added.

Every batch that absorbs ids into a window adds one segment. Segments are merged like the digits of
a counter: eight of one level become one of the next level. So a window of a thousand batches is
read in at most 28 segments, and an id is rewritten three times.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BASE: Final = 8


class SegmentPlan(NamedTuple):
    """The segment for the new ids."""

    segment: int
    """Its number."""
    level: int
    merged: tuple[int, ...]
    """Segments, oldest first, whose ids precede the new ones in it. They are removed, except the
    one whose number it takes."""


def plan_segment(levels: Mapping[int, int]) -> SegmentPlan:
    """Plan one more segment of a window; `levels` has the level of each segment by its number.

    Numbers ascend from the oldest segment on, and levels descend.
    """
    numbers = sorted(levels)
    level, kept = 0, len(numbers)
    while kept >= BASE - 1 and all(levels[n] == level for n in numbers[kept - BASE + 1 : kept]):
        kept -= BASE - 1
        level += 1
    merged = tuple(numbers[kept:])
    segment = merged[0] if merged else (numbers[-1] + 1 if numbers else 0)
    return SegmentPlan(segment, level, merged)
