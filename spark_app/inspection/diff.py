"""What changed for a merchant between two batches."""

from dataclasses import dataclass
from enum import StrEnum

from holdfast.spark_app.inspection.view import Merchant, Snapshot, Timer, Window


class Change(StrEnum):
    """How a window changed."""

    APPEARED = "appeared"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class WindowChange:
    """A window that differs between both batches; None on the side where it does not exist."""

    before: Window | None
    after: Window | None

    @property
    def change(self) -> Change:
        """How it changed."""
        if self.before is None:
            return Change.APPEARED
        return Change.GONE if self.after is None else Change.CHANGED

    @property
    def window(self) -> Window:
        """The newer side that exists."""
        window = self.after or self.before
        assert window is not None  # noqa: S101 - one side always exists
        return window

    @property
    def absorbed(self) -> tuple[str, ...]:
        """The new event ids, in the order in which they were absorbed."""
        return _without(self.after, self.before)

    @property
    def forgotten(self) -> tuple[str, ...]:
        """The forgotten event ids."""
        return _without(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Difference:
    """A merchant after two batches, and the windows that differ."""

    before: Snapshot
    after: Snapshot
    windows: tuple[WindowChange, ...]
    """In ascending end."""
    timers_set: tuple[Timer, ...]
    timers_gone: tuple[Timer, ...]

    @property
    def known(self) -> bool:
        """Whether there is state of the merchant after either batch."""
        return self.before.merchant is not None or self.after.merchant is not None

    @property
    def held(self) -> tuple[bool, bool]:
        """Whether the merchant was held, before and after; False without state."""
        return _held(self.before.merchant), _held(self.after.merchant)

    @property
    def latest_end_us(self) -> tuple[int | None, int | None]:
        """The end of the latest emitted window, before and after; None without state."""
        return _latest(self.before.merchant), _latest(self.after.merchant)

    @property
    def changed(self) -> bool:
        """Whether the merchant's state differs."""
        return self.before.merchant != self.after.merchant


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """Compare a merchant after two batches, the earlier one first."""
    old, new = _by_end(before.merchant), _by_end(after.merchant)
    changes = (WindowChange(old.get(end), new.get(end)) for end in sorted(old.keys() | new.keys()))
    was, now = _timers(before.merchant), _timers(after.merchant)
    return Difference(
        before=before,
        after=after,
        windows=tuple(change for change in changes if change.before != change.after),
        timers_set=tuple(timer for timer in now if timer not in was),
        timers_gone=tuple(timer for timer in was if timer not in now),
    )


def _by_end(merchant: Merchant | None) -> dict[int, Window]:
    return {} if merchant is None else {window.end_us: window for window in merchant.windows}


def _timers(merchant: Merchant | None) -> tuple[Timer, ...]:
    return () if merchant is None else merchant.timers


def _held(merchant: Merchant | None) -> bool:
    return merchant is not None and merchant.held


def _latest(merchant: Merchant | None) -> int | None:
    return None if merchant is None else merchant.latest_end_us


def _without(these: Window | None, those: Window | None) -> tuple[str, ...]:
    mine = () if these is None else these.event_ids
    others = set() if those is None else set(those.event_ids)
    return tuple(event_id for event_id in mine if event_id not in others)
