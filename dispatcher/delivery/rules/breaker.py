"""The breaker of an endpoint: its states, every move between them, and how long it stays open.

It lives in the database (`endpoint_pace`), so that every dispatcher sees the same one.
docs/delivery.md draws the table, and a test compares the two.
"""

from enum import StrEnum

from sink.contract.states import BreakerState


class Event(StrEnum):
    """What can happen to a breaker."""

    TRIP = "trip"
    """As many attempts in a row failed as the endpoint allows, or our guard refused its address."""
    PROBE = "probe"
    """Its time is over and a dispatcher claimed one entry to try."""
    FREE = "free"
    """The probe proved nothing: it was not sent, by a stop or a fault of ours."""
    ANSWERED = "answered"
    """The receiver answered the probe."""
    FAILED = "failed"
    """The probe failed too."""
    WARM = "warm"
    """The time of the slow start is over."""


_CLOSED, _OPEN, _HALF_OPEN, _SLOW_START = BreakerState

TRANSITIONS: dict[tuple[BreakerState, Event], BreakerState] = {
    (_CLOSED, Event.TRIP): _OPEN,
    (_OPEN, Event.PROBE): _HALF_OPEN,
    # Also when the lease of the first probe ran out: whoever had it may be dead.
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
"""An opening is shortened or lengthened by up to this share, so that not all go in step."""


class IllegalEventError(ValueError):
    """The table has no such event in this state."""


def after(state: BreakerState, event: Event) -> BreakerState:
    """Return the state behind `event`; raises `IllegalEventError` where there is none."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalEventError(f"a breaker that is {state} cannot {event}") from None


def open_seconds(openings: int, *, draw: float) -> float:
    """Return how long the breaker stays open for the `openings`-th time in a row, from 1.

    `draw` is a random number in [0, 1).
    """
    base = OPEN_SECONDS_MIN * 2.0 ** min(openings - 1, 16)
    return min(base, OPEN_SECONDS_MAX) * (1 - JITTER + 2 * JITTER * draw)
