"""Which windows are emitted and which are forgotten: rules 4 and 5 of a batch."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.spark_app.exposure.book import Book, Windows, by_owner
from holdfast.spark_app.exposure.judge import BLOCK, RELEASE, Actions, judge
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import Bools, integers
from holdfast.spark_app.exposure.settings import Settings


class Emissions(NamedTuple):
    """The windows emitted in a batch, in order, their counters updated, and the action of each."""

    windows: Windows
    action: Actions


def emit(
    book: Book, changed: Bools, watermark_us: int, policy: Policy, settings: Settings
) -> Emissions:
    """Emit what is due, in ascending end per merchant, and update the book.

    Due are an open window whose end is reached, an emitted window that changed, and the empty
    window that follows the latest one of a held merchant.
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
        action = np.append(action, np.full(len(blank), RELEASE, np.int8))[order]

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
