"""The values that travel through a delivery: endpoint, claimed lane, attempt, settlement.

Times that end in `_at` are the database's clock; `trusted_until` is this process's own clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from dispatcher.delivery.rules.lifecycle import Move
from dispatcher.shared.value import value
from sink.contract.states import (
    BreakerState,
    DeadReason,
    Outcome,
)


@value
class Entry:
    """One claimed entry. `number` is the attempt that this claim is about to make, from 1.

    `rescued` is how many of the attempts before it used up no step of the schedule: they ended with
    their lease, by a fault of ours, or as `Attempt.takes_step` says.
    """

    sequence: int
    number: int
    key: UUID
    created_at: datetime
    traceparent: str | None
    body: bytes = field(repr=False)
    rescued: int = 0
    forgotten: bool = False
    """Whether it was first tried longer ago than its receiver keeps keys."""


@value
class Lane:
    """One endpoint and one subject under a lease, with the entries to send in this order.

    The lease is ours until `trusted_until`, in seconds of this process's clock: earlier than the
    database's deadline, because it was measured before the claim was sent.
    """

    endpoint_id: int
    subject_id: int
    token: UUID
    delivered_sequence: int
    entries: tuple[Entry, ...]
    trusted_until: float
    """Up to when an attempt may end; a paced lane's is earlier than its lease's."""
    settle_until: float | None = None
    """Up to when its result is kept; None: `trusted_until`."""
    claimed_at: float = 0.0
    """This process's clock from before the claim."""
    tried_seconds: float = 0.0
    """How long the head has been tried, by its endpoint's running clock."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A due lane whose next entry is missing; `found` is the first that is there, if one is."""

    endpoint_id: int
    subject_id: int
    delivered_sequence: int
    found: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim came back with: lanes under a lease, and lanes that it left alone."""

    lanes: Sequence[Lane]
    gaps: Sequence[Gap]
    held: Sequence[int] = ()
    """Endpoints that nothing may be sent to now, by their breaker or by Retry-After."""
    closed: Sequence[int] = ()
    """Endpoints whose slow start is over: the claim closed their breaker."""
    paced: Mapping[int, int] = field(default_factory=dict)
    """Endpoints that are sent to at a rate now, with how many lanes it allowed."""
    again_seconds: float | None = None
    """When a rate allows the next lane, where one allowed none."""


@value
class Attempt:
    """One try and what became of it. `asked_seconds` is what the receiver's Retry-After said.

    `ours` says that it failed by a fault of this process or was cancelled by a stop: then it tells
    nothing about the receiver. `other_key` is what the answer named instead of `key`. `barred` says
    that our own guard refused the endpoint, not the entry.
    """

    sequence: int
    number: int
    key: UUID
    outcome: Outcome
    status: int | None
    duration_ms: int
    error: str | None
    response: str | None = field(repr=False)
    receipt: str | None = field(repr=False)
    asked_seconds: float | None = None
    ours: bool = False
    other_key: str | None = None
    barred: bool = False

    @property
    def put_off(self) -> bool:
        """Whether the receiver said when to come again, which is an instruction and no failure.

        "At once" is none: an entry would be sent again and again, and never take a step.
        """
        return self.outcome is Outcome.THROTTLED and bool(self.asked_seconds)

    @property
    def takes_step(self) -> bool:
        """Whether it uses up a step of the schedule."""
        return not (self.put_off or self.barred)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that is given up; a person decides what becomes of it."""

    sequence: int
    key: UUID
    created_at: datetime
    reason: DeadReason
    detail: str
    attempts: int


@value
class Settlement:
    """What the database shall know after a lane's turn; it counts only while `token` is the lane's.

    `attempt` is the number of attempts that the next entry has had, 0 where that is for the
    attempts on record to say, and `rescued` how many of them used up no step of the schedule.
    `delay_us` is set for a retry. `disable` is the reason to disable the whole endpoint.
    """

    endpoint_id: int
    subject_id: int
    token: UUID
    move: Move
    delivered_sequence: int
    attempt: int
    rescued: int
    attempts: tuple[Attempt, ...]
    trusted_until: float
    delay_us: int | None = None
    dead: DeadLetter | None = None
    disable: str | None = None
    unsent: int = 0
    """How many of the claimed entries were not sent."""
    asked_us: int = 0
    """How long the receiver put the next entry off, which its budget counts."""


@dataclass(frozen=True, slots=True)
class PaceChange:
    """What results changed about the pace of their endpoint."""

    before: BreakerState
    breaker: BreakerState
    breaker_until: datetime | None
    reason: str | None
    held_until: datetime | None
    """When a hold ends that these results asked for."""

    @property
    def holds(self) -> bool:
        """Whether nothing may be sent any more for now."""
        return self.breaker is BreakerState.OPEN or self.held_until is not None


@value
class Settled:
    """A settlement that the database accepted; `due_at` is None for an idle or stopped lane.

    `paced` is set where it, with the others of its endpoint, changed the endpoint's pace.
    """

    settlement: Settlement
    due_at: datetime | None
    paced: PaceChange | None = None


@dataclass(frozen=True, slots=True)
class Rescued:
    """An entry whose lease ran out: one attempt with outcome `unknown`."""

    endpoint_id: int
    subject_id: int
    sequence: int
    number: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many lanes of each endpoint a claim may take, under which lease."""

    lanes: Mapping[int, int]
    token: UUID
    lease_seconds: float
    entries_per_lane: int


@dataclass(frozen=True, slots=True)
class Routed:
    """What one routing transaction did."""

    batches: int
    lanes: int
    priorities: Sequence[Sequence[int]] = field(default=(), compare=False)
    """Endpoints with priorities of these lanes: where a claim has to look."""


@dataclass(frozen=True, slots=True)
class Instance:
    """How this process shows in `dispatcher_instance`."""

    id: UUID
    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class OldDays:
    """The days of entries and attempts that are old enough to be dropped."""

    today: date
    """By the database's clock, UTC."""
    days: Sequence[tuple[str, date]]
    """Table and day, entries first, oldest first."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of one day."""

    outcome: str
    """`dropped`; `refused`: something in it is undelivered; `busy`: in use; `gone`: not there."""
    row_count: int | None
    bytes: int | None
    waiting: int | None
    unrouted: int | None
    dead_letters: int | None
    abandoned: int | None
    """Undelivered for endpoints that are disabled, which keeps nothing."""
    endpoints: Sequence[str] | None
    """Those that `waiting` and `dead_letters` are for."""
