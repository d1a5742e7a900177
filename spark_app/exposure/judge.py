"""The decision rule: the holds of all merchants, through all emissions of a batch at once.

A merchant's hold is a latch. Its judged emissions act on it in ascending window end:

    exposure > limit           sets the latch    (a block, when it was not set)
    exposure <= release level  clears it         (a release, when it was set)
    in between                 leaves it
    a gap                      clears it: if a hold reaches a window end at which nothing is
                               emitted, the empty window there is, and 0 <= release level always

So the latch after an emission is the result of the last emission that set or cleared it: one
running maximum for any number of windows and merchants, no loop. An empty window never has to be
judged again, because the release level is validated to be at least 0.

Merchants for whom a decision by hand is in force follow `by_hand`, one by one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark_app.exposure import by_hand
from holdfast.spark_app.exposure.by_hand import BLOCK, NOTHING, RELEASE
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import Bools, Int64s, integers
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import Book, Windows, by_owner

Actions = npt.NDArray[np.int8]


# Which windows are emitted and which are forgotten: rules 4 and 5 of a batch.


class Emissions(NamedTuple):
    """The windows emitted in a batch, in order, their counters updated, and the action of each."""

    windows: Windows
    action: Actions


def emit(
    book: Book, changed: Bools, watermark_us: int, policy: Policy, settings: Settings
) -> Emissions:
    """Emit what is due, in ascending end per merchant, and update the book.

    Due are an open window whose end is reached, an emitted window that changed, the empty window
    that follows the latest one of a held merchant, and one that ends what a hand decided.
    """
    windows = book.windows
    due = np.where(windows.revision == 0, windows.end <= watermark_us, changed)
    verdict = judge(book, windows.where(due), policy, watermark_us, settings.window_us)
    action = np.zeros(len(due), np.int8)
    action[due] = verdict.action
    book.held, book.latest = verdict.held, verdict.latest

    if len(verdict.empty_owner):
        blank = np.zeros(len(verdict.empty_owner), np.int64)
        empty = Windows(verdict.empty_owner, verdict.empty_end, blank, blank, blank, blank)
        windows = Windows(*map(np.concatenate, zip(windows, empty, strict=True)))
        order = by_owner(windows.owner, windows.end)
        windows = windows.where(order)
        due = np.append(due, np.ones(len(blank), np.bool_))[order]
        action = np.append(action, verdict.empty_action)[order]

    book.windows = windows._replace(
        revision=windows.revision + due,
        blocks=windows.blocks + (action == BLOCK),
        releases=windows.releases + (action == RELEASE),
    )
    return Emissions(book.windows.where(due), action[due])


def forget(book: Book, ids: pa.Table, closed_us: int) -> pa.Table:
    """Forget the windows that end at `closed_us` or before; return the ids that stay."""
    stays = book.windows.end > closed_us
    if stays.all():
        return ids
    book.windows = book.windows.where(stays)
    held = integers(ids["window_end"]) > closed_us
    return ids if held.all() else ids.filter(pa.array(held))


class Judgement(NamedTuple):
    """The result of the emissions of a batch."""

    action: Actions
    """Per emission: NOTHING, BLOCK or RELEASE."""
    empty_owner: Int64s
    """Empty windows that close because of a hold or a decision by hand: they are emitted too."""
    empty_end: Int64s
    empty_action: Actions
    held: Bools
    """Per merchant, afterwards."""
    latest: Int64s


class _Line(NamedTuple):
    """Judged emissions in order; each held merchant begins with its previous latest window."""

    owner: Int64s
    end: Int64s
    emission: Int64s
    """Position among the emissions; -1 for a hold that was there before."""
    sets: Bools
    clears: Bools


def judge(
    book: Book, emitted: Windows, policy: Policy, watermark_us: int, window_us: int
) -> Judgement:
    """Judge emissions (sorted by owner and end) against the holds of the book."""
    usual = ~book.by_hand.in_force
    # Before these change, what follows takes from the book who is not among them.
    line = _line_up(book, emitted, policy, usual)
    one_by_one = by_hand.judge(book, emitted, policy, watermark_us, window_us)
    action = np.full(len(emitted.end), NOTHING, np.int8)
    held, latest = book.held.copy(), book.latest.copy()
    if not len(line.owner):
        closed = np.zeros(0, np.int8)
        return _with(one_by_one, Judgement(action, line.owner, line.end, closed, held, latest))

    first = np.insert(line.owner[1:] != line.owner[:-1], 0, True)
    last = np.append(first[1:], True)
    closes_next = line.end + window_us
    follows = np.append(line.end[1:], 0)
    gap_after = (closes_next <= watermark_us) & (last | (follows > closes_next))

    # `fresh`: nothing carries over into this emission. The first of a merchant is fresh too: a
    # merchant that was held before starts with its hold.
    fresh = first | np.insert(gap_after[:-1], 0, False)
    position = np.arange(len(first))
    decisive = np.maximum.accumulate(np.where(line.sets | line.clears | fresh, position, 0))
    held_after = line.sets[decisive]
    held_before = np.insert(held_after[:-1], 0, False) & ~fresh

    blocks = line.sets & ~held_before & (line.emission >= 0)
    action[line.emission[blocks]] = BLOCK
    action[line.emission[line.clears & held_before]] = RELEASE

    empty = gap_after & held_after
    merchant = line.owner[last]
    held[merchant] = (held_after & ~gap_after)[last]
    latest[merchant] = np.where(empty, closes_next, line.end)[last]
    released = np.full(int(empty.sum()), RELEASE, np.int8)
    return _with(
        one_by_one,
        Judgement(action, line.owner[empty], closes_next[empty], released, held, latest),
    )


def _with(judged: list[by_hand.Judged], others: Judgement) -> Judgement:
    """Add the windows of merchants decided by hand."""
    if not judged:
        return others
    for each in judged:
        if each.place is not None:
            others.action[each.place] = each.action
    empty = [each for each in judged if each.place is None]
    return others._replace(
        empty_owner=np.append(others.empty_owner, [each.owner for each in empty]).astype(np.int64),
        empty_end=np.append(others.empty_end, [each.end for each in empty]).astype(np.int64),
        empty_action=np.append(others.empty_action, [e.action for e in empty]).astype(np.int8),
    )


def _line_up(book: Book, emitted: Windows, policy: Policy, usual: Bools) -> _Line:
    # A window older than the latest emitted one is published and not judged. Emissions ascend, so
    # comparing with the latest one before the batch is enough.
    judged = np.flatnonzero((emitted.end >= book.latest[emitted.owner]) & usual[emitted.owner])
    before = np.flatnonzero(book.held & usual)
    chosen = emitted.where(judged)
    limit, release_level = policy.limits(book.names.take(chosen.owner), chosen.end)
    owner = np.concatenate([before, chosen.owner])
    end = np.concatenate([book.latest[before], chosen.end])
    emission = np.concatenate([np.full(len(before), -1), judged])
    sets = np.concatenate([np.ones(len(before), np.bool_), chosen.exposure > limit])
    clears = np.concatenate([np.zeros(len(before), np.bool_), chosen.exposure <= release_level])
    # The previous hold sorts before a new emission of the same window.
    order = by_owner(owner, 2 * end + (emission >= 0))
    return _Line(owner[order], end[order], emission[order], sets[order], clears[order])
