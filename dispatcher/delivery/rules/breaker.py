"""The breaker of an endpoint: its states, its transitions, and how long it stays open.

It is stored in `endpoint_pace`, so every dispatcher sees the same state. docs/delivery.md draws
the table, and a test compares the two.
"""

from enum import StrEnum

from holdfast.sink.contract.states import BreakerState


class Event(StrEnum):
    """What can happen to a breaker."""

    TRIP = "trip"
    """Consecutive failures reached the threshold, or the address guard refused its address."""
    PROBE = "probe"
    """The breaker's time is over and a dispatcher claimed one entry to try."""
    FREE = "free"
    """The probe is inconclusive: a stop or an internal error kept it from being sent."""
    ANSWERED = "answered"
    """The receiver answered the probe."""
    FAILED = "failed"
    """The probe failed too."""
    WARM = "warm"
    """The slow start is over."""


_CLOSED, _OPEN, _HALF_OPEN, _SLOW_START = BreakerState

TRANSITIONS: dict[tuple[BreakerState, Event], BreakerState] = {
    (_CLOSED, Event.TRIP): _OPEN,
    (_OPEN, Event.PROBE): _HALF_OPEN,
    # The lease of the first probe ended: its dispatcher may have crashed.
    (_HALF_OPEN, Event.PROBE): _HALF_OPEN,
    (_HALF_OPEN, Event.FREE): _HALF_OPEN,
    (_HALF_OPEN, Event.ANSWERED): _SLOW_START,
    (_HALF_OPEN, Event.FAILED): _OPEN,
    (_SLOW_START, Event.TRIP): _OPEN,
    (_SLOW_START, Event.WARM): _CLOSED,
}

OPEN_SECONDS_MIN = 5.0
OPEN_SECONDS_MAX = 300.0
JITTER = 0.2
"""An opening varies by up to this share, so that breakers do not close in step."""


class IllegalEventError(ValueError):
    """The table has no such event in this state."""


def after(state: BreakerState, event: Event) -> BreakerState:
    """Return the state after `event`; raises `IllegalEventError` where there is none."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalEventError(f"a breaker that is {state} cannot {event}") from None


def open_seconds(openings: int, *, draw: float) -> float:
    """Return how long the breaker stays open at its `openings`-th consecutive opening, from 1.

    `draw` is a random number in [0, 1).
    """
    base = OPEN_SECONDS_MIN * 2.0 ** min(openings - 1, 16)
    return min(base, OPEN_SECONDS_MAX) * (1 - JITTER + 2 * JITTER * draw)
