"""Decisions by hand: what they make of a merchant's hold, and how they end. Pure.

A hold has an origin: a window, by the usual rule, or a hand. Of two decisions by hand the higher
number counts. The whole rule, one row a change:

    hold               event                                         hold afterwards
    any                a block by hand                               held, by hand
    any                a release by hand                             not held, by hand
    held, by hand      a window that ends at or after `until`        held; judged as usual
    held, by hand      any other window                              as it was
    not held, by hand  a window that ends after the decision, with
                       an exposure at or below the limit             not held; judged as usual
    not held, by hand  a window that ends at or after `until`        not held; judged as usual
    not held, by hand  any other window                              as it was
    not held           a window above the limit                      held (a block)
    held               a window at or below the release level        not held (a release)

The window that ends what a hand decided is judged as usual, by the last two rows. Without `until`,
only another decision by hand ends a block.

An empty window closes where it ends what a hand decided, so neither outlives its reason because
traffic stopped: the first one at or after the `until` of a block, the first one after a release.

People decide about few merchants at a time, so these are judged one by one.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import NEVER, Bools, Int64s, integers, one_chunk
from holdfast.spark_app.exposure.state import Book, Windows, or_never

NOTHING: Final = 0
BLOCK: Final = 1
RELEASE: Final = 2


class Hand(NamedTuple):
    """A decision by hand that is in force; times in microseconds since 1970."""

    number: int
    decided: int
    until: int | None


class Hold(NamedTuple):
    """Whether a merchant is held, and the decision by hand of which that is the result, if any."""

    held: bool
    hand: Hand | None


class Level(NamedTuple):
    """A merchant's limits, in force at the end of a window."""

    limit: int
    release: int


def judged(hold: Hold, end: int, exposure: int, level: Level) -> tuple[Hold, int]:
    """Return the hold after a window, and the decision: NOTHING, BLOCK or RELEASE."""
    if hold.hand is not None and not _ends(hold, hold.hand, end, exposure, level):
        return hold, NOTHING
    if not hold.held and exposure > level.limit:
        return Hold(held=True, hand=None), BLOCK
    if hold.held and exposure <= level.release:
        return Hold(held=False, hand=None), RELEASE
    return Hold(hold.held, None), NOTHING


def _ends(hold: Hold, hand: Hand, end: int, exposure: int, level: Level) -> bool:
    """Return whether a window ends what a hand decided."""
    if hand.until is not None and end >= hand.until:
        return True
    return not hold.held and end > hand.decided and exposure <= level.limit


def learn(book: Book, decisions: pa.Table, owner: Int64s, over_us: int, window_us: int) -> None:
    """Let decisions (`schema.BY_HAND`; `owner` numbers their merchants) take force in the book.

    One that is not newer than the merchant's is ignored. Windows that end by `over_us` are emitted
    no more, so they close for nobody.
    """
    number, block = integers(decisions["number"]), one_chunk(decisions["block"]).to_numpy(False)
    decided, until = integers(decisions["decided_at"]), or_never(decisions["until"])
    over = NEVER if over_us == NEVER else over_us // window_us * window_us
    for place in np.argsort(number, kind="stable"):
        mine = owner[place]
        if number[place] <= book.by_hand.number[mine]:
            continue
        book.held[mine] = block[place]
        book.latest[mine] = max(book.latest[mine], over)
        for column, value in zip(
            book.by_hand, (number[place], decided[place], until[place]), strict=True
        ):
            column[mine] = value


def next_empty(
    held: Bools, latest: Int64s, decided: Int64s, until: Int64s, window_us: int
) -> Int64s:
    """Return the end of the empty window that closes next by what a hand decided; NEVER for none.

    The columns are of merchants with a decision by hand in force.
    """
    first = np.where(held, -(-until // window_us), decided // window_us + 1) * window_us
    following = np.where(latest == NEVER, NEVER, latest + window_us)
    ends: Int64s = np.where(held & (until == NEVER), NEVER, np.maximum(first, following))
    return ends


def alarms(merchants: pa.Table, window_us: int) -> Int64s:
    """Return when empty windows close by what a hand decided (`schema.STATE_MERCHANTS`)."""
    mine = merchants.filter(merchants["hand_number"].is_valid())
    latest, decided, until = (
        or_never(mine[name]) for name in ("latest_end", "hand_decided_at", "hand_until")
    )
    ends = next_empty(one_chunk(mine["held"]).to_numpy(False), latest, decided, until, window_us)
    waiting: Int64s = ends[ends != NEVER]
    return waiting


class Judged(NamedTuple):
    """What became of a window of a merchant that was decided by hand."""

    owner: int
    end: int
    place: int | None
    """Its place among the emissions; None for an empty one that closes."""
    action: int


def judge(
    book: Book, emitted: Windows, policy: Policy, watermark_us: int, window_us: int
) -> list[Judged]:
    """Judge the emissions (sorted by owner and end) of merchants decided by hand.

    Changes their holds in the book.
    """
    return [
        each
        for owner in np.flatnonzero(book.by_hand.in_force)
        for each in _Merchant(book, int(owner), policy, window_us).through(emitted, watermark_us)
    ]


class _Merchant:
    """One merchant through the windows of a batch."""

    def __init__(self, book: Book, owner: int, policy: Policy, window_us: int) -> None:
        number, decided, until = (int(column[owner]) for column in book.by_hand)
        self._book, self._owner, self._policy, self._window_us = book, owner, policy, window_us
        self._latest = int(book.latest[owner])
        hand = Hand(number, decided, None if until == NEVER else until)
        self._hold = Hold(bool(book.held[owner]), hand)

    def through(self, emitted: Windows, watermark_us: int) -> Iterator[Judged]:
        """Judge its windows in ascending end, with the empty ones that close between them."""
        mine = np.flatnonzero((emitted.owner == self._owner) & (emitted.end >= self._latest))
        for place in mine.tolist():
            end = int(emitted.end[place])
            yield from self._empty_until(min(end - 1, watermark_us))
            yield self._judged(end, int(emitted.exposure[place]), place)
        yield from self._empty_until(watermark_us)
        book, owner, hand = self._book, self._owner, self._hold.hand
        book.held[owner], book.latest[owner] = self._hold.held, self._latest
        if hand is None:
            for column in book.by_hand:
                column[owner] = NEVER

    def _empty_until(self, latest_us: int) -> Iterator[Judged]:
        while (end := self._next_empty()) is not None and end <= latest_us:
            yield self._judged(end, 0, None)

    def _next_empty(self) -> int | None:
        held, hand = self._hold
        if hand is None:
            return self._latest + self._window_us if held else None
        until = NEVER if hand.until is None else hand.until
        latest, decided, ends = (np.array([each]) for each in (self._latest, hand.decided, until))
        end = int(next_empty(np.array([held]), latest, decided, ends, self._window_us)[0])
        return None if end == NEVER else end

    def _judged(self, end: int, exposure: int, place: int | None) -> Judged:
        name = self._book.names.take(pa.array([self._owner]))
        limit, release = self._policy.limits(name, np.array([end]))
        level = Level(int(limit[0]), int(release[0]))
        self._hold, action = judged(self._hold, end, exposure, level)
        self._latest = end
        return Judged(self._owner, end, place, action)
