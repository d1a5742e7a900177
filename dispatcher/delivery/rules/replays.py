"""A replay's rate, and what happens to its items. Pure; times are the database's clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

from holdfast.dispatcher.delivery.rules.decide import detail_of
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.pace import DEBT_MAX, Allowance
from holdfast.dispatcher.delivery.rules.values import Lane, Settlement
from holdfast.dispatcher.shared.rate import BUCKET_SECONDS
from holdfast.sink.contract.states import Outcome

BURST_SECONDS = 0.1
"""Size of a burst, in seconds of the rate; at least one item."""

RESERVE = 2
"""Live traffic keeps 1/N of an endpoint's slots and of its rate."""


@dataclass(frozen=True, slots=True)
class ReplayRate:
    """The rate of one replay, shared by all dispatchers: `paid_until` is in its row."""

    per_second: int | None
    """None: only the endpoints' rates limit it."""

    paid_until: datetime | None
    """Time up to which claimed items have used up the rate; None: none was claimed."""


def bounded(rate: ReplayRate, at: datetime) -> ReplayRate:
    """Return the rate with `paid_until` bounded relative to `at`, as for an endpoint's pace."""
    if rate.paid_until is None or rate.paid_until <= at + DEBT_MAX:
        return rate
    return replace(rate, paid_until=at + DEBT_MAX)


def affordable(rate: ReplayRate, limit: int, at: datetime) -> int:
    """Return how many of `limit` items may be claimed at `at`.

    >>> from datetime import UTC
    >>> noon = datetime(2025, 11, 3, 12, tzinfo=UTC)
    >>> affordable(ReplayRate(50, None), 100, noon)
    5
    >>> affordable(ReplayRate(50, noon + timedelta(seconds=0.06)), 100, noon)
    2
    """
    if rate.per_second is None:
        return limit
    owed = max(0.0, (rate.paid_until - at).total_seconds()) if rate.paid_until else 0.0
    burst = max(1.0, rate.per_second * BURST_SECONDS)
    # A millionth short of a whole item counts as one: times are stored in microseconds.
    return max(0, min(limit, int(burst - owed * rate.per_second + 1e-3)))


def paid(rate: ReplayRate, items: int, at: datetime) -> datetime | None:
    """Return `paid_until` after `items` were claimed at `at`."""
    if rate.per_second is None or items == 0:
        return rate.paid_until
    begin = max(rate.paid_until, at) if rate.paid_until else at
    return begin + timedelta(seconds=items / rate.per_second)


def spare(free: int, total: int) -> int:
    """Return how many of `free` slots or bucket places, of `total`, live traffic does not need.

    >>> [spare(free, 8) for free in (8, 5, 4, 0)]
    [4, 1, 0, 0]
    >>> spare(1, 1)
    1
    """
    return max(0, free - (total // RESERVE))


def allowed_for_replay(allowance: Allowance) -> int:
    """Return how many entries a replay may send to an endpoint with this allowance.

    Under a rate limit, live traffic keeps its part of the bucket.
    """
    if allowance.rate is None:
        return allowance.lanes
    return spare(allowance.lanes, max(1, int(allowance.rate * BUCKET_SECONDS)))


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """How many items of each endpoint a dispatcher can claim, and the lease."""

    room: Mapping[int, int]
    token: UUID
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class ReplayTurn:
    """The result of one claim of replay items."""

    lanes: Sequence[Lane] = ()
    """Entries to send again under a lease, one per lane."""
    moved: int = 0
    """Lanes that live traffic continues: released, or with their retry brought forward."""
    ended: Mapping[UUID, int] | None = None
    """Replays whose last item is settled, with their number of items."""
    paced: bool = False
    """Whether a replay's rate held items back."""
    item_count: int = 0
    """Number of claimed items of any kind."""


@dataclass(frozen=True, slots=True)
class ItemAfter:
    """The state of an item after its lease."""

    outcome: Outcome | None
    """Of the last attempt; None: nothing was sent."""
    detail: str | None
    delay_us: int
    charged: int
    """Number of steps of the endpoint's schedule that were used up."""
    settled: bool


def item_after(settlement: Settlement) -> ItemAfter:
    """Decide about the item of `settlement`, which is that of a lane with one entry.

    The endpoint's schedule applies as for a lane. An exhausted item stores the last outcome and its
    detail, and makes no dead letter: its entry has one already or was delivered before.
    """
    last = settlement.attempts[-1] if settlement.attempts else None
    if last is None:
        return ItemAfter(None, None, 0, 0, settled=False)
    match settlement.move:
        case Move.ADVANCE:
            return ItemAfter(last.outcome, None, 0, 1, settled=True)
        case Move.BURY | Move.SKIP:
            return ItemAfter(last.outcome, detail_of(last), 0, 1, settled=True)
        case Move.RETRY:
            delay = settlement.delay_us or 0
            charged = int(last.takes_step)
            return ItemAfter(last.outcome, detail_of(last), delay, charged, settled=False)
        case Move.KEEP | Move.RELEASE:
            # Its endpoint is gone: the item waits until it is enabled again.
            return ItemAfter(last.outcome, settlement.disable, 0, 0, settled=False)
        case (
            Move.ROUTE
            | Move.CLAIM
            | Move.EMPTY
            | Move.GAP
            | Move.RESCUE
            | Move.REDELIVER
            | Move.DISMISS
            | Move.GO_ON
        ):
            raise ValueError(f"{settlement.move} settles nothing")
        case _:
            assert_never(settlement.move)
