"""A reference implementation of the exposure rules, one event at a time.

The demo and the property tests compare with it. It shares no code with the Spark job and uses only
integers, dicts and lists, so that a reader can check it against the rules:

    window     15 minutes, [start, end), by the time of the event
    absorb     an event id counts once per merchant while its window is kept; a window whose end
               plus the cutoff is not after the watermark accepts no more events
    emit       when the watermark reaches the end; until the cutoff, again when the sum changed
    decide     on the merchant's latest emitted window: over the limit blocks, at or below the
               release level releases
    held       a merchant under a hold closes the next window even if nothing happened in it
    by hand    a person blocks or releases; windows are still published, and none decides, until a
               block reaches a window at or after its `until`, or a release one after it that is
               within the limit (or at or after its `until`); that window is judged as usual, and
               closes even if nothing happened in it

Amounts are integers in minor units, times are microseconds since 1970-01-01 UTC.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

WINDOW_US = 15 * 60 * 1_000_000
LATE_CUTOFF_US = 2 * 60 * 1_000_000


class Event(NamedTuple):
    """One valid event. The caller sets `future_dated` by the clock of the batch."""

    event_id: str
    merchant_id: str
    type: str
    amount_minor: int
    currency: str
    occurred_at_us: int
    future_dated: bool = False


class Hand(NamedTuple):
    """A decision by hand; of two for a merchant the higher number counts."""

    merchant_id: str
    number: int
    block: bool
    decided_us: int
    until_us: int | None


class Emission(NamedTuple):
    """A published window; the first revision is 1."""

    merchant_id: str
    window_start: int
    window_end: int
    revision: int
    exposure_minor: int
    currency: str
    policy_version: str


class Decision(NamedTuple):
    """A hold that begins (`block`) or ends (`release`)."""

    merchant_id: str
    action: str
    window_start: int
    window_end: int
    revision: int
    ordinal: int
    exposure_minor: int
    limit_minor: int
    release_level_minor: int
    currency: str
    policy_version: str


class Late(NamedTuple):
    """An event that was recorded and not applied; `reason` says why."""

    reason: str
    event_id: str
    merchant_id: str
    type: str
    amount_minor: int
    currency: str
    occurred_at: int
    watermark: int | None


class BatchResult(NamedTuple):
    """The output of one batch, by merchant id and end of the window."""

    windows: list[Emission]
    decisions: list[Decision]
    late: list[Late]


@dataclass
class _Window:
    exposure: int = 0
    revision: int = 0  # 0: not published yet
    published: int = 0  # the last published exposure
    absorbed: set[str] = field(default_factory=set)
    made: dict[str, int] = field(default_factory=dict)  # number of decisions by action


@dataclass
class _Merchant:
    windows: dict[int, _Window] = field(default_factory=dict)  # by the end of the window
    held: bool = False
    latest: int | None = None  # end of the latest window ever published, or over for good
    hand: Hand | None = None  # the decision by hand that is in force


class Reference:
    """Recomputes a stream batch by batch; `policy_path` is the job's policy file.

    Windows that end by `settled_until_us` were published by an earlier checkpoint.
    """

    def __init__(
        self,
        policy_path: Path,
        *,
        window_us: int = WINDOW_US,
        late_cutoff_us: int = LATE_CUTOFF_US,
        settled_until_us: int = 0,
    ) -> None:
        self._policy = tomllib.loads(policy_path.read_text(encoding="utf-8"))
        self._version: str = self._policy["version"]
        self._window_us = window_us
        self._cutoff_us = late_cutoff_us
        self._settled_us = settled_until_us
        self._merchants: dict[str, _Merchant] = {}

    def batch(
        self, rows: list[Event], watermark_us: int | None, by_hand: Sequence[Hand] = ()
    ) -> BatchResult:
        """Apply one batch. `watermark_us` comes from earlier batches; None before the first.

        The decisions `by_hand` are in force for its windows.
        """
        result = BatchResult([], [], [])
        arrived = {
            merchant_id: list(events)
            for merchant_id, events in groupby(
                sorted(rows, key=lambda row: row.merchant_id), key=lambda row: row.merchant_id
            )
        }
        for decision in by_hand:
            self._learn(decision, watermark_us)
        # Time advances for every merchant, also without events.
        for merchant_id in sorted(self._merchants.keys() | arrived.keys()):
            merchant = self._merchants.setdefault(merchant_id, _Merchant())
            for event in sorted(
                arrived.get(merchant_id, []),
                key=lambda row: (
                    row.occurred_at_us,
                    row.event_id,
                    row.type,
                    row.amount_minor,
                    row.currency,
                ),
            ):
                self._absorb(merchant, event, watermark_us, result)
            if watermark_us is not None:
                self._close(merchant_id, merchant, watermark_us, result)
                self._forget(merchant_id, merchant, watermark_us)
        return result

    def _absorb(
        self, merchant: _Merchant, event: Event, watermark: int | None, result: BatchResult
    ) -> None:
        start = event.occurred_at_us - event.occurred_at_us % self._window_us
        end = start + self._window_us
        reason = None
        if event.future_dated:
            reason = "future_dated"
        elif end <= self._settled_us and not self._expired(end, watermark):
            reason = "settled"
        elif any(event.event_id in window.absorbed for window in merchant.windows.values()):
            reason = "duplicate"
        elif self._expired(end, watermark):
            reason = "late"
        if reason is not None:
            result.late.append(
                Late(
                    reason,
                    event.event_id,
                    event.merchant_id,
                    event.type,
                    event.amount_minor,
                    event.currency,
                    event.occurred_at_us,
                    watermark,
                )
            )
            return
        window = merchant.windows.setdefault(end, _Window())
        window.exposure += event.amount_minor
        window.absorbed.add(event.event_id)

    def _learn(self, decision: Hand, watermark: int | None) -> None:
        merchant = self._merchants.setdefault(decision.merchant_id, _Merchant())
        if merchant.hand is not None and merchant.hand.number >= decision.number:
            return
        merchant.hand, merchant.held = decision, decision.block
        # Windows that can no longer change were published, or never will be.
        over = [self._settled_us] if self._settled_us else []
        if watermark is not None:
            over.append((watermark - self._cutoff_us) // self._window_us * self._window_us)
        if merchant.latest is not None:
            over.append(merchant.latest)
        merchant.latest = max(over, default=None)

    def _close(
        self, merchant_id: str, merchant: _Merchant, watermark: int, result: BatchResult
    ) -> None:
        for end in self._ends(merchant, watermark):
            window = merchant.windows.setdefault(end, _Window())
            if window.revision and window.exposure == window.published:
                continue
            window.revision += 1
            window.published = window.exposure
            result.windows.append(
                Emission(
                    merchant_id,
                    end - self._window_us,
                    end,
                    window.revision,
                    window.exposure,
                    self.currency(merchant_id),
                    self._version,
                )
            )
            if merchant.latest is None or end >= merchant.latest:
                merchant.latest = end
                self._judge(merchant_id, merchant, end, result)

    def _ends(self, merchant: _Merchant, watermark: int) -> Iterator[int]:
        """Yield the window ends up to the watermark, ascending.

        A decision on the way may hold the merchant, so each step recomputes the ends: under a hold
        the window after the latest one closes even without events.
        """
        done: int | None = None
        while True:
            due = {end for end in merchant.windows if end <= watermark}
            following = self._following(merchant)
            if following is not None and following <= watermark:
                due.add(following)
            later = [end for end in due if done is None or end > done]
            if not later:
                return
            done = min(later)
            yield done

    def _following(self, merchant: _Merchant) -> int | None:
        """Return the end of the window that closes next, even without events."""
        after = -(2**62) if merchant.latest is None else merchant.latest
        if merchant.hand is None:
            return after + self._window_us if merchant.held else None
        decided, until = merchant.hand.decided_us, merchant.hand.until_us
        if not merchant.hand.block:
            first = decided - decided % self._window_us + self._window_us
        elif until is None:
            return None
        else:
            first = until if until % self._window_us == 0 else self._end_of(until)
        return first if first > after else after + self._window_us

    def _end_of(self, moment: int) -> int:
        return moment - moment % self._window_us + self._window_us

    def _judge(self, merchant_id: str, merchant: _Merchant, end: int, result: BatchResult) -> None:
        window = merchant.windows[end]
        limit, release_level = self._limits(merchant_id, end)
        if (hand := merchant.hand) is not None:
            over = hand.until_us is not None and hand.until_us <= end
            if not hand.block:
                over = over or (hand.decided_us < end and window.exposure <= limit)
            if not over:
                return
            merchant.hand = None
        if not merchant.held and window.exposure > limit:
            action = "block"
        elif merchant.held and window.exposure <= release_level:
            action = "release"
        else:
            return
        merchant.held = action == "block"
        window.made[action] = window.made.get(action, 0) + 1
        result.decisions.append(
            Decision(
                merchant_id,
                action,
                end - self._window_us,
                end,
                window.revision,
                window.made[action],
                window.exposure,
                limit,
                release_level,
                self.currency(merchant_id),
                self._version,
            )
        )

    def _forget(self, merchant_id: str, merchant: _Merchant, watermark: int) -> None:
        for end in [end for end in merchant.windows if self._expired(end, watermark)]:
            del merchant.windows[end]
        if not merchant.windows and not merchant.held and merchant.hand is None:
            del self._merchants[merchant_id]

    def _expired(self, end: int, watermark: int | None) -> bool:
        return watermark is not None and end + self._cutoff_us <= watermark

    def currency(self, merchant_id: str) -> str:
        currency: str = self._policy.get("currency", "USD")
        for entry in self._policy.get("merchant", []):
            if entry["id"] == merchant_id and "currency" in entry:
                currency = entry["currency"]
        return currency

    def _limits(self, merchant_id: str, end: int) -> tuple[int, int]:
        """Return limit and release level of the newest entry in force; own entries come first."""
        own = [entry for entry in self._policy.get("merchant", []) if entry["id"] == merchant_id]
        for entries in (own, self._policy["default"]):
            in_force = [entry for entry in entries if _effective_us(entry) <= end]
            if in_force:
                newest = max(in_force, key=_effective_us)
                return newest["limit_minor"], newest["release_level_minor"]
        raise LookupError(f"no policy is in force for {merchant_id} at {end}")


def _effective_us(entry: dict[str, datetime]) -> int:
    """Return when an entry takes effect; one without a date is always in force."""
    since = entry.get("effective_from")
    if since is None:
        return -(2**63)
    return (since - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
