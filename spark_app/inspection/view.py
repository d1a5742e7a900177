"""The state of one merchant: its hold, its windows, its event ids, and what is due when.

Pure: derived from the state of the merchant's key group after one batch.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.schema import NEVER, integers
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState


class Due(StrEnum):
    """What happens to a window when the watermark reaches a moment."""

    EMIT = "emit"
    """An open window is emitted and judged."""
    EXPIRE = "expire"
    """A window and its event ids are forgotten; an event for it is late from then on."""
    CLOSE_EMPTY = "close_empty"
    """A hold closes the window after the latest one, although no event fell into it."""


class Timer(NamedTuple):
    """One moment at which something is due for the merchant; times in microseconds."""

    at_us: int
    due: Due
    window_end_us: int


@dataclass(frozen=True, slots=True)
class Window:
    """A window in state; times in microseconds, the exposure in minor units."""

    start_us: int
    end_us: int
    exposure_minor: int
    revision: int
    """0 while the window is open, then the number of its emissions."""
    blocks: int
    releases: int
    event_ids: tuple[str, ...]
    """In the order in which they were absorbed."""
    expire_us: int

    @property
    def is_open(self) -> bool:
        """Whether the window was never emitted; an emitted window can still be revised."""
        return self.revision == 0

    @property
    def emit_us(self) -> int | None:
        """When an open window is emitted."""
        return self.end_us if self.is_open else None


@dataclass(frozen=True, slots=True)
class Merchant:
    """The state of a merchant; windows in ascending end."""

    held: bool
    latest_end_us: int | None
    """End of the latest emitted window; None when nothing was emitted yet."""
    windows: tuple[Window, ...]
    next_empty_us: int | None
    """End of the window that the hold closes next, if no event falls into it before."""

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Everything that is due, in ascending time."""
        timers = [Timer(w.expire_us, Due.EXPIRE, w.end_us) for w in self.windows]
        timers += [Timer(w.end_us, Due.EMIT, w.end_us) for w in self.windows if w.is_open]
        if self.next_empty_us is not None:
            timers.append(Timer(self.next_empty_us, Due.CLOSE_EMPTY, self.next_empty_us))
        return tuple(sorted(timers))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A merchant after one batch."""

    batch: int
    judged_us: int | None
    """The watermark with which the batch ran; None when there was none yet."""
    group_timer_us: int | None
    """When Spark calls the key group next, if no event arrives before."""
    settled_until_us: int | None
    """Windows that end here or before were settled before this checkpoint; None without any."""
    merchant: Merchant | None
    """None without state."""


def view(state: GroupState, merchant_id: str, settings: Settings) -> Merchant | None:
    """Return one merchant from the state of its key group; None where it is missing."""
    known = state.merchants.filter(_of(state.merchants, merchant_id))
    if not known.num_rows:
        return None
    held = bool(known["held"][0].as_py())
    latest = _moments(known["latest_end"])[0]
    latest_end_us = None if latest == NEVER else latest
    windows = _windows(state, merchant_id, settings)
    next_empty_us = None
    if held and latest_end_us is not None:
        following = latest_end_us + settings.window_us
        if all(window.end_us != following for window in windows):
            next_empty_us = following
    return Merchant(held, latest_end_us, windows, next_empty_us)


def _windows(state: GroupState, merchant_id: str, settings: Settings) -> tuple[Window, ...]:
    mine = state.windows.filter(_of(state.windows, merchant_id))
    ids = state.absorbed.filter(_of(state.absorbed, merchant_id))
    where, names = integers(ids["window_end"]), ids["event_id"]
    windows = []
    for end_us, row in zip(_moments(mine["window_end"]), _counts(mine), strict=True):
        inside = names.filter(pa.array(where == end_us))
        windows.append(
            Window(
                start_us=end_us - settings.window_us,
                end_us=end_us,
                event_ids=tuple(inside.to_pylist()),
                expire_us=end_us + settings.late_cutoff_us,
                **row,
            )
        )
    return tuple(sorted(windows, key=lambda window: window.end_us))


def _of(table: pa.Table, merchant_id: str) -> pa.ChunkedArray:
    return pc.equal(table["merchant_id"], merchant_id)


def _moments(column: pa.ChunkedArray) -> list[int]:
    moments: list[int] = integers(column.cast(pa.int64()).fill_null(NEVER)).tolist()
    return moments


def _counts(windows: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = windows.select(
        ["exposure_minor", "revision", "blocks", "releases"]
    ).to_pylist()
    return rows
