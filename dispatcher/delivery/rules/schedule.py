"""When the next attempt is due. Pure: randomness is a parameter.

The schedule holds the seconds before retry 1, 2, ...; an entry is exhausted when the attempt after
the last one fails too. Steps are counted, not attempts: an attempt that says nothing about the
entry takes none (`Attempt.takes_step`). Retry-After can lengthen a delay. After a failure it cannot
shorten one, or a receiver could use up an entry's steps within a minute.
"""

from collections.abc import Sequence

from holdfast.dispatcher.delivery.rules.breaker import OPEN_SECONDS_MAX

JITTER = 0.2
"""A delay of the schedule varies by this share, both ways."""

RETRY_AFTER_SECONDS_MAX = 24 * 3600
"""Upper bound of a Retry-After."""

RETRY_AFTER_SPREAD = 0.1
"""A Retry-After is lengthened by up to this share, so that lanes do not return in step."""

SOON_SECONDS = 5
"""Delay of a quick retry, unless the first step of the schedule is shorter."""

CONFLICT_ATTEMPTS = 3
"""Number of quick retries after "still running" (409), before the schedule applies."""


def retry_delay_us(
    schedule_seconds: Sequence[int],
    step: int,
    *,
    draw: float,
    asked_seconds: float | None = None,
    conflict: bool = False,
) -> int | None:
    """Return the microseconds until the next attempt, or None when step `step` was the last.

    `step` counts the attempts that took a step, from 1. `draw` is a random number in [0, 1),
    `asked_seconds` what Retry-After said, `conflict` whether the answer was "still running".
    """
    if step > len(schedule_seconds):
        return None
    base: float = schedule_seconds[step - 1]
    if conflict and step <= CONFLICT_ATTEMPTS:
        base = min(base, SOON_SECONDS)
    return _delay_us(base, draw, asked_seconds)


def free_delay_us(
    schedule_seconds: Sequence[int], *, draw: float, asked_seconds: float | None = None
) -> int:
    """Return the microseconds until the next attempt after one that took no step.

    That is the Retry-After, and at least the delay of a quick retry.
    """
    return _delay_us(min((*schedule_seconds[:1], SOON_SECONDS)), draw, asked_seconds)


def credentials_delay_us(schedule_seconds: Sequence[int], number: int, *, draw: float) -> int:
    """Return the microseconds until the attempt after `number`, which met refused credentials.

    That is the schedule, no longer than an open breaker waits for its next probe.
    """
    steps = schedule_seconds or (SOON_SECONDS,)
    base = steps[min(number, len(steps)) - 1]
    return _delay_us(min(base, OPEN_SECONDS_MAX), draw, None)


def _delay_us(base: float, draw: float, asked_seconds: float | None) -> int:
    delay = base * (1 - JITTER + 2 * JITTER * draw)
    if asked_seconds is not None:
        at_least = min(asked_seconds, RETRY_AFTER_SECONDS_MAX)
        delay = max(delay, at_least * (1 + RETRY_AFTER_SPREAD * draw))
    return round(delay * 1_000_000)
