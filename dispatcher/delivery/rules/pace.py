"""The pace of an endpoint, its row of `endpoint_pace`: what may be claimed, what results change.

Every function decides about one such row. The caller holds its lock, passes the database's time and
stores the returned row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never
from uuid import UUID

from holdfast.dispatcher.delivery.rules.breaker import (
    JITTER,
    OPEN_SECONDS_MAX,
    Event,
    after,
    open_seconds,
)
from holdfast.dispatcher.delivery.rules.schedule import RETRY_AFTER_SECONDS_MAX
from holdfast.dispatcher.delivery.rules.values import Attempt, Settlement
from holdfast.dispatcher.shared.rate import BUCKET_SECONDS, sustained
from holdfast.dispatcher.shared.states import BARRED, CREDENTIALS
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.states import BreakerState, EndpointState, Outcome

DEBT_MAX = timedelta(seconds=2)
"""How far ahead the rate may be used up. No claim gets that far: a later time comes from a clock
that was set back since, and would keep the endpoint from being claimed."""

OPENING_MAX = timedelta(seconds=OPEN_SECONDS_MAX * (1 + JITTER))
HOLD_MAX = timedelta(seconds=RETRY_AFTER_SECONDS_MAX)
"""Limits of the end of an open breaker and of a hold, for the same reason."""

CREDENTIALS_THRESHOLD = 10
"""Answers in a row that refuse our credentials and open the breaker of an endpoint whose other
failures never open it."""

RAMP_PER_SECOND = 4.0
RAMP_DOUBLINGS = 10
"""A slow start begins at this rate (entries a second) and doubles it this many times in total."""


_FAILURES = (Outcome.FAILED, Outcome.UNKNOWN, Outcome.THROTTLED)
_ANSWERS = (Outcome.DELIVERED, Outcome.REJECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A row of `endpoint_pace`."""

    endpoint_id: int
    breaker: BreakerState
    breaker_since: datetime
    breaker_until: datetime | None = None
    """Open: when a probe may be sent. Half-open: end of the probe's lease. Slow start: its end."""
    breaker_reason: str | None = None
    failures: int = 0
    """Consecutive failures, while the breaker is closed or in a slow start."""
    openings: int = 0
    """Openings since the breaker was last closed."""
    probe: UUID | None = None
    paid_until: datetime
    """Time up to which claimed entries have used up the rate."""
    held_until: datetime | None = None
    held_by: str | None = None
    paused: bool = False
    stalled_us: int = 0
    """Total time that the running clock was stopped, without the current stop."""
    stalled_since: datetime | None = None
    """Start of the current stop."""
    stalled_until: datetime | None = None
    """When the current stop ends by itself; None: only when something ends it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's settings of the endpoint."""

    rate_per_second: int | None
    breaker_threshold: int
    slow_start_seconds: int
    attempt_seconds: float
    """The longest time of an attempt."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much may be claimed of one endpoint now."""

    lanes: int
    entries: int
    """Per lane."""
    rate: float | None = None
    """Entries a second that limit the claim; None: no limit."""
    probe: bool = False
    fresh_from: datetime | None = None
    """In a slow start: lanes due from this time on do not wait behind the backlog."""


def allowance(pace: Pace, limits: Limits, lanes: int, entries: int, at: datetime) -> Allowance:
    """Return how many of `lanes` with `entries` each may be claimed at `at`; 0 lanes: none."""
    if pace.held_until is not None and at < pace.held_until:
        return Allowance(0, 0)
    match pace.breaker:
        case BreakerState.OPEN | BreakerState.HALF_OPEN:
            may_probe = pace.breaker_until is None or at >= pace.breaker_until
            return Allowance(min(lanes, 1), 1, probe=True) if may_probe else Allowance(0, 0)
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
    """Return the seconds from `at` until this rate allows a claim."""
    return max(0.0, (pace.paid_until - at).total_seconds() - (_bucket(rate) - 1) / rate)


def as_of(pace: Pace, at: datetime) -> Pace:
    """Return the row as of `at`: with bounded times, and closed after its slow start.

    Times are bounded because the clock may have been set back. Storing the row fixes the bound:
    otherwise it would move with each read.
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
    """Return the rate in entries a second at `at`, or None without a limit."""
    limit = None if limits.rate_per_second is None else sustained(limits.rate_per_second)
    if pace.breaker_until is None or not starts_slowly(pace, at):
        return limit
    # Uses the setting at its start: an operator may have changed it since.
    duration = (pace.breaker_until - pace.breaker_since).total_seconds()
    # Length 0: slow start is disabled, but this transaction may be older than its start.
    elapsed_share = (at - pace.breaker_since).total_seconds() / duration if duration > 0 else 1.0
    share = min(1.0, max(0.0, elapsed_share))
    ramp: float = RAMP_PER_SECOND * 2.0 ** (RAMP_DOUBLINGS * share)
    return min(ramp, limit or ramp)


def claimed(
    pace: Pace, allowed: Allowance, entries: int, at: datetime, token: UUID, lease_seconds: float
) -> Pace:
    """Return the row after a claim under `token` took `entries` within `allowed`."""
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
    # A millionth short of a whole entry counts as one: times are stored in microseconds.
    return max(0, int(_bucket(rate) - owed * rate + 1e-3))


def _bucket(rate: float) -> float:
    return max(1.0, rate * BUCKET_SECONDS)


def moved(pace: Pace, event: Event, at: datetime) -> Pace:
    """Return the row after a transition of its breaker."""
    return replace(
        pace,
        breaker=after(pace.breaker, event),
        breaker_since=at,
        breaker_until=None,
        failures=0,
        probe=None,
    )


def starts_slowly(pace: Pace, at: datetime) -> bool:
    """Return whether a slow start is in progress."""
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
            pace = _with_hold(pace, attempt, at)
        if pace.breaker is BreakerState.HALF_OPEN and settlement.token == pace.probe:
            pace = _probed(pace, settlement, limits, at, draw)
        elif pace.breaker in (BreakerState.CLOSED, BreakerState.SLOW_START):
            pace = _counted(pace, settlement, limits, at, draw)
        # While it is open, results of earlier requests change nothing.
    return pace


def failures_after(failures: int, attempt: Attempt) -> int:
    """Return the number of consecutive failures after `attempt`; `failures` is that before it.

    A rejection is an answer. Internal errors and rescues say nothing about the receiver.
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


def _with_hold(pace: Pace, attempt: Attempt, at: datetime) -> Pace:
    if not attempt.put_off:
        return pace
    asked_seconds = min(attempt.asked_seconds or 0, RETRY_AFTER_SECONDS_MAX)
    until = at + timedelta(seconds=asked_seconds)
    if pace.held_until is not None and until <= pace.held_until:
        return pace
    held_pace = replace(
        pace, held_until=until, held_by=f"answered {attempt.status} with Retry-After"
    )
    return _stalled(held_pace, at, until)


def _counted(pace: Pace, settlement: Settlement, limits: Limits, at: datetime, draw: float) -> Pace:
    for attempt in settlement.attempts:
        if attempt.barred:
            return _opened(pace, Event.TRIP, at, draw, _barred(attempt))
        before, after_it = pace.failures, failures_after(pace.failures, attempt)
        threshold = limits.breaker_threshold
        if not threshold and attempt.credentials_refused:
            threshold = CREDENTIALS_THRESHOLD
        if after_it > before and not threshold:
            continue
        pace = replace(pace, failures=after_it)
        if after_it > before and after_it >= threshold:
            reason = _opening_reason(
                attempt, f"{after_it} failures in a row, the last one {_attempt_text(attempt)}"
            )
            return _opened(pace, Event.TRIP, at, draw, reason)
    return pace


def _probed(pace: Pace, settlement: Settlement, limits: Limits, at: datetime, draw: float) -> Pace:
    last = settlement.attempts[-1] if settlement.attempts else None
    if last is not None and last.barred:
        return _opened(pace, Event.FAILED, at, draw, _barred(last))
    if last is None or last.ours or last.outcome not in _FAILURES + _ANSWERS:
        freed = after(pace.breaker, Event.FREE)
        return replace(pace, breaker=freed, breaker_until=at)
    if last.outcome in _FAILURES:
        return _opened(
            pace, Event.FAILED, at, draw, _opening_reason(last, f"the probe {_attempt_text(last)}")
        )
    return replace(
        _running(moved(pace, Event.ANSWERED, at), at),
        breaker_until=at + timedelta(seconds=limits.slow_start_seconds),
        failures=0,
        paid_until=at,
    )


def _opened(pace: Pace, event: Event, at: datetime, draw: float, reason: str) -> Pace:
    openings = pace.openings + 1
    opened = replace(
        moved(pace, event, at),
        breaker_until=at + timedelta(seconds=open_seconds(openings, draw=draw)),
        breaker_reason=reason,
        openings=openings,
    )
    return _stalled(opened, at, None)


def _stalled(pace: Pace, at: datetime, until: datetime | None) -> Pace:
    """Stop the running clock until `until`; None: until `_running` starts it."""
    since, end = pace.stalled_since, pace.stalled_until
    if since is None:
        return replace(pace, stalled_since=at, stalled_until=until)
    if end is None:
        return pace
    if end <= at:  # that stop is over
        # A clock that was set back may put the end before the start.
        stood = pace.stalled_us + max(0, _us(end - since))
        return replace(pace, stalled_us=stood, stalled_since=at, stalled_until=until)
    return replace(pace, stalled_until=None if until is None else max(until, end))


def _running(pace: Pace, at: datetime) -> Pace:
    """Start the running clock, unless something else stops it."""
    if pace.paused or pace.stalled_since is None:
        return pace
    if pace.held_until is not None and pace.held_until > at:
        return replace(pace, stalled_until=max(pace.held_until, pace.stalled_since))
    stood = max(0, _us(at - pace.stalled_since))
    return replace(pace, stalled_us=pace.stalled_us + stood, stalled_since=None, stalled_until=None)


def _opening_reason(attempt: Attempt, text: str) -> str:
    return f"{CREDENTIALS}: {text}" if attempt.credentials_refused else text


def _attempt_text(attempt: Attempt) -> str:
    if attempt.status is not None:
        return f"answered {attempt.status}"
    return f"had no answer: {attempt.error or attempt.outcome}"[:300]


def _barred(attempt: Attempt) -> str:
    return f"{BARRED}: {attempt.error}"[:300]


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def why_held_up(row: Mapping[str, Any]) -> str:
    """Return the reason in a row of `endpoint_held_up`.

    A pause comes before a breaker, and a breaker before Retry-After: the hold that ends last, as
    far as that is known.
    """
    if row["state"] != EndpointState.ACTIVE:
        cause = f" ({one_line(row['state_reason'])})" if row["state_reason"] else ""
        way_out = f"`holdfast endpoint resume {row['name']} --reason TEXT`"
        return f"it is {row['state']}{cause} until {way_out}"
    if row["breaker"] in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        cause = f", after {one_line(row['breaker_reason'])}" if row["breaker_reason"] else ""
        return f"its breaker is open until {rfc3339(row['breaker_until'])}{cause}"
    answer = one_line(row["held_by"]) if row["held_by"] else "asked for time"
    return f"its receiver {answer}: it is held until {rfc3339(row['held_until'])}"
