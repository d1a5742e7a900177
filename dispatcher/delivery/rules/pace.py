"""How fast an endpoint is sent to: its row of `endpoint_pace`, and what may be claimed of it now.

Everything here, and in `pace_results`, is a decision about one such row. The caller holds its lock,
passes the database's time and stores what comes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

from dispatcher.delivery.rules.breaker import (
    JITTER,
    OPEN_SECONDS_MAX,
    Event,
    after,
    open_seconds,
)
from dispatcher.delivery.rules.schedule import RETRY_AFTER_SECONDS_MAX
from dispatcher.delivery.rules.values import Attempt, Settlement
from dispatcher.shared.rate import BUCKET_SECONDS, sustained
from dispatcher.shared.states import BARRED
from sink.contract.states import BreakerState, Outcome

DEBT_MAX = timedelta(seconds=2)
"""How far ahead the rate may be used up. A claim never gets that far, at any rate: what is further
ahead is of a clock that was set back since, and would keep an endpoint from being claimed."""

OPENING_MAX = timedelta(seconds=OPEN_SECONDS_MAX * (1 + JITTER))
HOLD_MAX = timedelta(seconds=RETRY_AFTER_SECONDS_MAX)
"""How far ahead an open breaker and a hold may end, for the same reason."""

RAMP_PER_SECOND = 4.0
RAMP_DOUBLINGS = 10
"""A slow start begins with so many entries a second and doubles so often until it is over."""


_FAILURES = (Outcome.FAILED, Outcome.UNKNOWN, Outcome.THROTTLED)
_ANSWERS = (Outcome.DELIVERED, Outcome.REJECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A row of `endpoint_pace`."""

    endpoint_id: int
    breaker: BreakerState
    breaker_since: datetime
    breaker_until: datetime | None = None
    """Open: when a probe may go. Half-open: when the probe's lease ends. Slow start: its end."""
    breaker_reason: str | None = None
    failures: int = 0
    """Failures in a row, while the breaker is closed or starts slowly."""
    openings: int = 0
    """Openings since it was last closed."""
    probe: UUID | None = None
    paid_until: datetime
    """Up to when what was claimed has used up the rate."""
    held_until: datetime | None = None
    held_by: str | None = None
    paused: bool = False
    stalled_us: int = 0
    """How long the running clock stood still, without the stall that began at `stalled_since`."""
    stalled_since: datetime | None = None
    stalled_until: datetime | None = None
    """When that stall ends by itself; None: not before somebody ends it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an operator set for the endpoint."""

    rate_per_second: int | None
    breaker_threshold: int
    slow_start_seconds: int
    attempt_seconds: float
    """How long an attempt may take."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What may be claimed of one endpoint now."""

    lanes: int
    entries: int
    """Of each lane."""
    rate: float | None = None
    """Entries a second that it is charged by; None: it is not."""
    probe: bool = False
    fresh_from: datetime | None = None
    """In a slow start: what became due from here on does not wait behind the backlog."""


def allowance(pace: Pace, limits: Limits, lanes: int, entries: int, at: datetime) -> Allowance:
    """Return how much of `lanes` with `entries` each may be claimed at `at`; lanes 0: nothing."""
    if pace.held_until is not None and at < pace.held_until:
        return Allowance(0, 0)
    match pace.breaker:
        case BreakerState.OPEN | BreakerState.HALF_OPEN:
            over = pace.breaker_until is None or at >= pace.breaker_until
            return Allowance(min(lanes, 1), 1, probe=True) if over else Allowance(0, 0)
        case BreakerState.CLOSED | BreakerState.SLOW_START:
            rate = rate_of(pace, limits, at)
            if rate is None:
                return Allowance(lanes, entries)
            free = _free(pace, rate, at)
            lanes = min(lanes, free)
            fresh = pace.breaker_since if starts_slowly(pace, at) else None
            return Allowance(lanes, min(entries, free // max(lanes, 1)), rate, fresh_from=fresh)
        case _:
            assert_never(pace.breaker)


def next_seconds(pace: Pace, rate: float, at: datetime) -> float:
    """Return how long it is from `at` until something may be claimed at this rate."""
    return max(0.0, (pace.paid_until - at).total_seconds() - (_bucket(rate) - 1) / rate)


def as_of(pace: Pace, at: datetime) -> Pace:
    """Return the row as it stands at `at`: bounded, and closed after its slow start.

    Nothing is further ahead than it can be by a clock that was not set back. Who stores the row
    keeps the bound: it does not move on with each look.
    """
    pace = replace(
        pace,
        paid_until=min(pace.paid_until, at + DEBT_MAX),
        held_until=pace.held_until and min(pace.held_until, at + HOLD_MAX),
    )
    if pace.breaker in (BreakerState.OPEN, BreakerState.HALF_OPEN) and pace.breaker_until:
        pace = replace(pace, breaker_until=min(pace.breaker_until, at + OPENING_MAX))
    if pace.breaker is not BreakerState.SLOW_START or starts_slowly(pace, at):
        return pace
    return replace(moved(pace, Event.WARM, at), openings=0)


def rate_of(pace: Pace, limits: Limits, at: datetime) -> float | None:
    """Return the entries a second that hold at `at`, or None without a limit."""
    limit = None if limits.rate_per_second is None else sustained(limits.rate_per_second)
    if pace.breaker_until is None or not starts_slowly(pace, at):
        return limit
    # By the time that was set when it began: an operator may have set another one since.
    whole = (pace.breaker_until - pace.breaker_since).total_seconds()
    # No length: none is wanted, but this transaction may be older than the one that began it.
    begun = (at - pace.breaker_since).total_seconds() / whole if whole > 0 else 1.0
    share = min(1.0, max(0.0, begun))
    ramp: float = RAMP_PER_SECOND * 2.0 ** (RAMP_DOUBLINGS * share)
    return min(ramp, limit or ramp)


def claimed(
    pace: Pace, allowed: Allowance, entries: int, at: datetime, token: UUID, lease_seconds: float
) -> Pace:
    """Return the row after a claim under `token` took `entries` of what `allowed` said."""
    if entries == 0:
        return pace
    if allowed.probe:
        return replace(
            pace,
            breaker=after(pace.breaker, Event.PROBE),
            breaker_since=pace.breaker_since if pace.probe else at,
            breaker_until=at + timedelta(seconds=lease_seconds),
            probe=token,
        )
    if allowed.rate is None:
        return pace
    cost = timedelta(seconds=entries / allowed.rate)
    return replace(pace, paid_until=max(pace.paid_until, at) + cost)


def _free(pace: Pace, rate: float, at: datetime) -> int:
    owed = max(0.0, (pace.paid_until - at).total_seconds())
    # What is a millionth short of a whole entry is one: times are stored in microseconds.
    return max(0, int(_bucket(rate) - owed * rate + 1e-3))


def _bucket(rate: float) -> float:
    return max(1.0, rate * BUCKET_SECONDS)


def moved(pace: Pace, event: Event, at: datetime) -> Pace:
    """Return the row after a move of its breaker."""
    return replace(
        pace,
        breaker=after(pace.breaker, event),
        breaker_since=at,
        breaker_until=None,
        failures=0,
        probe=None,
    )


def starts_slowly(pace: Pace, at: datetime) -> bool:
    """Return whether a slow start is under way."""
    return (
        pace.breaker is BreakerState.SLOW_START
        and pace.breaker_until is not None
        and at < pace.breaker_until
    )


def settled(
    pace: Pace, settlements: Sequence[Settlement], limits: Limits, at: datetime, *, draw: float
) -> Pace:
    """Return the row after these results of its endpoint. `draw` is a random number in [0, 1)."""
    pace = as_of(pace, at)
    pace = _given_back(pace, settlements, limits, at)
    for settlement in settlements:
        for attempt in settlement.attempts:
            pace = _held(pace, attempt, at)
        if pace.breaker is BreakerState.HALF_OPEN and settlement.token == pace.probe:
            pace = _probed(pace, settlement, limits, at, draw)
        elif pace.breaker in (BreakerState.CLOSED, BreakerState.SLOW_START):
            pace = _counted(pace, settlement, limits, at, draw)
        # While it is open, what was under way before says nothing new.
    return pace


def failures_after(failures: int, attempt: Attempt) -> int:
    """Return how many attempts in a row have failed after `attempt`, of `failures` before it.

    What a receiver rejects is an answer; faults of ours and rescues say nothing about it.
    """
    if attempt.ours:
        return failures
    if attempt.outcome in _ANSWERS:
        return 0
    return failures + 1 if attempt.outcome in _FAILURES else failures


def _given_back(
    pace: Pace, settlements: Sequence[Settlement], limits: Limits, at: datetime
) -> Pace:
    rate, unsent = rate_of(pace, limits, at), sum(each.unsent for each in settlements)
    if rate is None or unsent == 0:
        return pace
    paid_until = max(pace.paid_until - timedelta(seconds=unsent / rate), at)
    return replace(pace, paid_until=min(pace.paid_until, paid_until))


def _held(pace: Pace, attempt: Attempt, at: datetime) -> Pace:
    if not attempt.put_off:
        return pace
    asked = min(attempt.asked_seconds or 0, RETRY_AFTER_SECONDS_MAX)
    until = at + timedelta(seconds=asked)
    if pace.held_until is not None and until <= pace.held_until:
        return pace
    held = replace(pace, held_until=until, held_by=f"answered {attempt.status} with Retry-After")
    return _stalled(held, at, until)


def _counted(pace: Pace, settlement: Settlement, limits: Limits, at: datetime, draw: float) -> Pace:
    for attempt in settlement.attempts:
        if attempt.barred:
            return _opened(pace, Event.TRIP, at, draw, _barred(attempt))
        before, after_it = pace.failures, failures_after(pace.failures, attempt)
        if after_it > before and not limits.breaker_threshold:
            continue
        pace = replace(pace, failures=after_it)
        if after_it > before and after_it >= limits.breaker_threshold:
            why = f"{after_it} failures in a row, the last one {_said(attempt)}"
            return _opened(pace, Event.TRIP, at, draw, why)
    return pace


def _probed(pace: Pace, settlement: Settlement, limits: Limits, at: datetime, draw: float) -> Pace:
    last = settlement.attempts[-1] if settlement.attempts else None
    if last is not None and last.barred:
        return _opened(pace, Event.FAILED, at, draw, _barred(last))
    if last is None or last.ours or last.outcome not in _FAILURES + _ANSWERS:
        freed = after(pace.breaker, Event.FREE)
        return replace(pace, breaker=freed, breaker_until=at)
    if last.outcome in _FAILURES:
        return _opened(pace, Event.FAILED, at, draw, f"the probe {_said(last)}")
    return replace(
        _running(moved(pace, Event.ANSWERED, at), at),
        breaker_until=at + timedelta(seconds=limits.slow_start_seconds),
        failures=0,
        paid_until=at,
    )


def _opened(pace: Pace, event: Event, at: datetime, draw: float, why: str) -> Pace:
    openings = pace.openings + 1
    opened = replace(
        moved(pace, event, at),
        breaker_until=at + timedelta(seconds=open_seconds(openings, draw=draw)),
        breaker_reason=why,
        openings=openings,
    )
    return _stalled(opened, at, None)


def _stalled(pace: Pace, at: datetime, until: datetime | None) -> Pace:
    """Stop the running clock until `until`; None: until `_running`."""
    since, end = pace.stalled_since, pace.stalled_until
    if since is None:
        return replace(pace, stalled_since=at, stalled_until=until)
    if end is None:
        return pace
    if end <= at:  # that stall is over
        # A clock that was set back may put the end before the beginning.
        stood = pace.stalled_us + max(0, _us(end - since))
        return replace(pace, stalled_us=stood, stalled_since=at, stalled_until=until)
    return replace(pace, stalled_until=None if until is None else max(until, end))


def _running(pace: Pace, at: datetime) -> Pace:
    """Let the running clock go on, unless something else stops it."""
    if pace.paused or pace.stalled_since is None:
        return pace
    if pace.held_until is not None and pace.held_until > at:
        return replace(pace, stalled_until=max(pace.held_until, pace.stalled_since))
    stood = max(0, _us(at - pace.stalled_since))
    return replace(pace, stalled_us=pace.stalled_us + stood, stalled_since=None, stalled_until=None)


def _said(attempt: Attempt) -> str:
    if attempt.status is not None:
        return f"answered {attempt.status}"
    return f"had no answer: {attempt.error or attempt.outcome}"[:300]


def _barred(attempt: Attempt) -> str:
    return f"{BARRED}: {attempt.error}"[:300]


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
