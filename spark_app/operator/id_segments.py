"""Which stored segments of a window's event ids are merged when another segment is added.

Every batch that absorbs ids into a window adds one segment. Segments are merged like the digits of
a counter: eight of one level become one of the next level. So a window of a thousand batches is
read in at most 28 segments, and an id is rewritten three times.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BASE: Final = 8


class SegmentPlan(NamedTuple):
    """Where the new ids go."""

    segment: int
    """The number under which they are stored."""
    level: int
    merged: tuple[int, ...]
    """Segments whose ids go before them into the same segment, oldest first; then they are gone,
    apart from the one whose number is taken over."""


def plan_segment(levels: Mapping[int, int]) -> SegmentPlan:
    """Plan one more segment beside those of a window, which are given as number and level.

    Numbers ascend with age, the oldest first, and levels descend.
    """
    numbers = sorted(levels)
    level, kept = 0, len(numbers)
    while kept >= BASE - 1 and all(levels[n] == level for n in numbers[kept - BASE + 1 : kept]):
        kept -= BASE - 1
        level += 1
    merged = tuple(numbers[kept:])
    segment = merged[0] if merged else (numbers[-1] + 1 if numbers else 0)
    return SegmentPlan(segment, level, merged)
