"""What results change about an endpoint's pace: breaker, hold, rate and running clock."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dispatcher.delivery.rules.breaker import Event, after, open_seconds
from dispatcher.delivery.rules.pace import Limits, Pace, as_of, moved, rate_of
from dispatcher.delivery.rules.schedule import RETRY_AFTER_SECONDS_MAX
from dispatcher.delivery.rules.values import Attempt, Settlement
from dispatcher.shared.states import BARRED
from sink.contract.states import BreakerState, Outcome

_FAILURES = (Outcome.FAILED, Outcome.UNKNOWN, Outcome.THROTTLED)
_ANSWERS = (Outcome.DELIVERED, Outcome.REJECTED)


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
