"""How fast an endpoint is sent to: what may be claimed now, and what results change about it.

Everything here is a decision about one row of `endpoint_pace`. The caller holds its lock, passes
the database's time and stores what comes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

from dispatcher.core.breaker import Event, after, open_seconds
from dispatcher.core.schedule import RETRY_AFTER_SECONDS_MAX
from dispatcher.core.values import Attempt, Settlement
from sink.contract.states import BreakerState, Outcome

BEGIN_SECONDS = 0.5
"""How long after its claim a paced entry may be begun; then it is given back.

Half a second's worth of entries in the bucket and this half second are together the burst of one
second that is promised: what was claimed and not begun cannot pile up behind a slow receiver.
"""

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
    total_timeout: float


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
            fresh = pace.breaker_since if _starts_slowly(pace, at) else None
            return Allowance(lanes, min(entries, free // max(lanes, 1)), rate, fresh_from=fresh)
        case _:
            assert_never(pace.breaker)


def warmed(pace: Pace, at: datetime) -> Pace:
    """Return the row with its breaker closed, if the time of its slow start is over."""
    if pace.breaker is not BreakerState.SLOW_START or _starts_slowly(pace, at):
        return pace
    return replace(_moved(pace, Event.WARM, at), openings=0)


def rate_of(pace: Pace, limits: Limits, at: datetime) -> float | None:
    """Return the entries a second that hold at `at`, or None without a limit."""
    if not _starts_slowly(pace, at):
        return limits.rate_per_second
    share = (at - pace.breaker_since).total_seconds() / limits.slow_start_seconds
    ramp: float = RAMP_PER_SECOND * 2.0 ** (RAMP_DOUBLINGS * max(0.0, share))
    return min(ramp, limits.rate_per_second or ramp)


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


def settled(
    pace: Pace, settlements: Sequence[Settlement], limits: Limits, at: datetime, *, draw: float
) -> Pace:
    """Return the row after these results of its endpoint. `draw` is a random number in [0, 1)."""
    pace = warmed(pace, at)
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


def _free(pace: Pace, rate: float, at: datetime) -> int:
    owed = max(0.0, (pace.paid_until - at).total_seconds())
    # What is a millionth short of a whole entry is one: times are stored in microseconds.
    return max(0, int(max(1.0, rate * BEGIN_SECONDS) - owed * rate + 1e-3))


def _given_back(
    pace: Pace, settlements: Sequence[Settlement], limits: Limits, at: datetime
) -> Pace:
    rate, unsent = rate_of(pace, limits, at), sum(each.unsent for each in settlements)
    if rate is None or unsent == 0:
        return pace
    paid_until = max(pace.paid_until - timedelta(seconds=unsent / rate), at)
    return replace(pace, paid_until=min(pace.paid_until, paid_until))


def _held(pace: Pace, attempt: Attempt, at: datetime) -> Pace:
    if attempt.outcome is not Outcome.THROTTLED or not attempt.asked_seconds:
        return pace
    asked = min(attempt.asked_seconds, RETRY_AFTER_SECONDS_MAX)
    until = at + timedelta(seconds=asked)
    if pace.held_until is not None and until <= pace.held_until:
        return pace
    held = replace(pace, held_until=until, held_by=f"answered {attempt.status} with Retry-After")
    return _stalled(held, at, until)


def _counted(pace: Pace, settlement: Settlement, limits: Limits, at: datetime, draw: float) -> Pace:
    for attempt in settlement.attempts:
        if attempt.ours:
            continue
        if attempt.outcome in _ANSWERS:
            pace = replace(pace, failures=0)
        elif attempt.outcome in _FAILURES and limits.breaker_threshold > 0:
            pace = replace(pace, failures=pace.failures + 1)
            if pace.failures >= limits.breaker_threshold:
                why = f"{pace.failures} failures in a row, the last one {_said(attempt)}"
                return _opened(pace, Event.TRIP, at, draw, why)
    return pace


def _probed(pace: Pace, settlement: Settlement, limits: Limits, at: datetime, draw: float) -> Pace:
    last = settlement.attempts[-1] if settlement.attempts else None
    if last is None or last.ours or last.outcome not in _FAILURES + _ANSWERS:
        freed = after(pace.breaker, Event.FREE)
        return replace(pace, breaker=freed, breaker_until=at)
    if last.outcome in _FAILURES:
        return _opened(pace, Event.FAILED, at, draw, f"the probe {_said(last)}")
    return replace(
        _running(_moved(pace, Event.ANSWERED, at), at),
        breaker_until=at + timedelta(seconds=limits.slow_start_seconds),
        failures=0,
        paid_until=at,
    )


def _opened(pace: Pace, event: Event, at: datetime, draw: float, why: str) -> Pace:
    openings = pace.openings + 1
    opened = replace(
        _moved(pace, event, at),
        breaker_until=at + timedelta(seconds=open_seconds(openings, draw=draw)),
        breaker_reason=why,
        openings=openings,
    )
    return _stalled(opened, at, None)


def _moved(pace: Pace, event: Event, at: datetime) -> Pace:
    return replace(
        pace,
        breaker=after(pace.breaker, event),
        breaker_since=at,
        breaker_until=None,
        failures=0,
        probe=None,
    )


def _stalled(pace: Pace, at: datetime, until: datetime | None) -> Pace:
    """Stop the running clock until `until`; None: until `_running`."""
    since, end = pace.stalled_since, pace.stalled_until
    if since is None:
        return replace(pace, stalled_since=at, stalled_until=until)
    if end is None:
        return pace
    if end <= at:  # that stall is over
        stood = pace.stalled_us + _us(end - since)
        return replace(pace, stalled_us=stood, stalled_since=at, stalled_until=until)
    return replace(pace, stalled_until=None if until is None else max(until, end))


def _running(pace: Pace, at: datetime) -> Pace:
    """Let the running clock go on, unless something else stops it."""
    if pace.paused or pace.stalled_since is None:
        return pace
    if pace.held_until is not None and pace.held_until > at:
        return replace(pace, stalled_until=pace.held_until)
    stood = max(0, _us(at - pace.stalled_since))
    return replace(pace, stalled_us=pace.stalled_us + stood, stalled_since=None, stalled_until=None)


def _starts_slowly(pace: Pace, at: datetime) -> bool:
    return (
        pace.breaker is BreakerState.SLOW_START
        and pace.breaker_until is not None
        and at < pace.breaker_until
    )


def _said(attempt: Attempt) -> str:
    if attempt.status is not None:
        return f"answered {attempt.status}"
    return f"had no answer: {attempt.error or attempt.outcome}"[:300]


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
