"""Decides what happens to a lane after its attempts. Nothing else decides that."""

from collections.abc import Sequence
from typing import assert_never

from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.schedule import (
    RETRY_AFTER_SECONDS_MAX,
    credentials_delay_us,
    free_delay_us,
    retry_delay_us,
)
from holdfast.dispatcher.delivery.rules.values import Attempt, DeadLetter, Entry, Lane, Settlement
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.outcome import CONFLICT
from holdfast.sink.contract.states import DeadReason, OrderPolicy, Outcome


def release(lane: Lane) -> Settlement:
    """Release a lane of which nothing was sent: due again at once, no attempt counts."""
    return _settlement(lane, Move.RELEASE, lane.delivered_sequence, ())


def settle(
    lane: Lane, attempts: Sequence[Attempt], endpoint: Endpoint, *, draw: float
) -> Settlement:
    """Decide after `attempts`, which belong to the lane's first entries, in order.

    Only the last one may be other than delivered. `draw` is a random number in [0, 1).
    """
    if not attempts:
        return release(lane)
    last = attempts[-1]
    tried = tuple(attempts)
    before = _delivered(lane, attempts)
    match last.outcome:
        case Outcome.DELIVERED:
            return _settlement(lane, Move.ADVANCE, before, tried)
        case Outcome.GONE:
            reason = f"answered 410 Gone to {_attempt_name(last)}"
            return _settlement(lane, Move.KEEP, before, tried, disable=reason)
        case Outcome.REJECTED:
            return _bury(lane, tried, endpoint, DeadReason.REJECTED)
        case Outcome.REFUSED if last.barred:
            # A fault of the endpoint: its entries wait, and use up neither schedule nor budget.
            delay_us = _delay_us(lane, tried, endpoint, draw)
            return _settlement(lane, Move.RETRY, before, tried, delay_us=delay_us)
        case Outcome.REFUSED:
            return _bury(lane, tried, endpoint, DeadReason.REFUSED)
        case Outcome.THROTTLED | Outcome.FAILED | Outcome.UNKNOWN:
            delay_us = _delay_us(lane, tried, endpoint, draw)
            if delay_us is None or _tried_seconds(lane, last) >= endpoint.budget_seconds:
                return _bury(lane, tried, endpoint, DeadReason.EXHAUSTED)
            return _settlement(lane, Move.RETRY, before, tried, delay_us=delay_us)
        case _:
            assert_never(last.outcome)


def _delay_us(
    lane: Lane, attempts: tuple[Attempt, ...], endpoint: Endpoint, draw: float
) -> int | None:
    last, schedule = attempts[-1], endpoint.schedule_seconds
    if last.credentials_refused:
        return credentials_delay_us(schedule, last.number, draw=draw)
    if not last.takes_step:
        return free_delay_us(schedule, draw=draw, asked_seconds=last.asked_seconds)
    return retry_delay_us(
        schedule,
        last.number - lane.entries[len(attempts) - 1].rescued,
        draw=draw,
        asked_seconds=last.asked_seconds,
        conflict=last.status == CONFLICT,
    )


def _bury(
    lane: Lane, attempts: tuple[Attempt, ...], endpoint: Endpoint, reason: DeadReason
) -> Settlement:
    last = attempts[-1]
    entry = lane.entries[len(attempts) - 1]
    dead = DeadLetter(
        sequence=entry.sequence,
        key=entry.key,
        created_at=entry.created_at,
        reason=reason,
        detail=detail_of(last),
        attempts=last.number,
    )
    match endpoint.order_policy:
        case OrderPolicy.STOP:
            return _settlement(lane, Move.BURY, _delivered(lane, attempts), attempts, dead=dead)
        case OrderPolicy.SKIP:
            return _settlement(lane, Move.SKIP, entry.sequence, attempts, dead=dead)
        case _:
            assert_never(endpoint.order_policy)


def _settlement(
    lane: Lane,
    move: Move,
    delivered_sequence: int,
    attempts: tuple[Attempt, ...],
    *,
    delay_us: int | None = None,
    dead: DeadLetter | None = None,
    disable: str | None = None,
) -> Settlement:
    following = _following(lane, delivered_sequence)
    retried = attempts[-1] if move is Move.RETRY else None
    free = retried is not None and not retried.takes_step
    return Settlement(
        endpoint_id=lane.endpoint_id,
        subject_id=lane.subject_id,
        token=lane.token,
        move=move,
        delivered_sequence=delivered_sequence,
        attempt=_attempts_of(following, attempts),
        rescued=following.rescued + free if following else 0,
        attempts=attempts,
        trusted_until=lane.trusted_until if lane.settle_until is None else lane.settle_until,
        delay_us=delay_us,
        dead=dead,
        disable=disable,
        unsent=len(lane.entries) - len(attempts),
        asked_us=_asked_us(retried),
    )


def _asked_us(retried: Attempt | None) -> int:
    if retried is None or not retried.put_off:
        return 0
    return round(min(retried.asked_seconds or 0, RETRY_AFTER_SECONDS_MAX) * 1_000_000)


def _tried_seconds(lane: Lane, last: Attempt) -> float:
    """Return how long the entry of `last` has been tried, by its endpoint's running clock."""
    if last.sequence != lane.entries[0].sequence:
        return 0.0  # it was first tried just now, or its lane does not store since when
    return lane.tried_seconds + last.duration_ms / 1000


def _delivered(lane: Lane, attempts: Sequence[Attempt]) -> int:
    for each in reversed(attempts):
        if each.outcome is Outcome.DELIVERED:
            return each.sequence
    return lane.delivered_sequence


def _following(lane: Lane, delivered_sequence: int) -> Entry | None:
    if not lane.entries or lane.entries[-1].sequence <= delivered_sequence:
        return None
    return next(entry for entry in lane.entries if entry.sequence > delivered_sequence)


def _attempts_of(following: Entry | None, attempts: Sequence[Attempt]) -> int:
    """Return how many attempts the next entry has had.

    A claim counts the attempt of its head before anything is sent. For an entry that was claimed
    and not sent, that count is undone here.
    """
    if following is None:
        return 0
    sent = any(each.sequence == following.sequence for each in attempts)
    return following.number if sent else following.number - 1


def detail_of(attempt: Attempt) -> str:
    """Return the result of an attempt that was not delivered, as text."""
    detail = attempt.error or attempt.response or ""
    answer = f"answered {attempt.status}" if attempt.status is not None else "no answer"
    return f"{answer}: {detail}"[:1000] if detail else answer


def _attempt_name(attempt: Attempt) -> str:
    return f"attempt {attempt.number} of sequence {attempt.sequence}"
