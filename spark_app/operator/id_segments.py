"""Which stored pieces of a window's ids become one when another piece is added.

Every batch that absorbs something into a window adds one piece. Pieces are merged like the digits
of a counter: when eight of one level are there, they become one of the next level. So a window of a
thousand batches is read in at most 28 pieces, and an id is rewritten three times.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BASE: Final = 8


class Plan(NamedTuple):
    """Where the new ids go."""

    piece: int
    """The number under which they are stored."""
    level: int
    merged: tuple[int, ...]
    """Pieces whose ids go before them into the same piece, oldest first; then they are gone,
    apart from the one whose number is taken over."""


def plan(levels: Mapping[int, int]) -> Plan:
    """Plan one more piece beside those of a window, which are given as number and level.

    Numbers ascend with age, the oldest first, and levels descend.
    """
    numbers = sorted(levels)
    level, kept = 0, len(numbers)
    while kept >= BASE - 1 and all(levels[n] == level for n in numbers[kept - BASE + 1 : kept]):
        kept -= BASE - 1
        level += 1
    merged = tuple(numbers[kept:])
    piece = merged[0] if merged else (numbers[-1] + 1 if numbers else 0)
    return Plan(piece, level, merged)
