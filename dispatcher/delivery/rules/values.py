"""The values of a delivery: claimed lane, attempt, settlement, and results of the store.

Times that end in `_at` are the database's clock; `trusted_until` is this process's own clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.shared.outcome import CREDENTIALS_REFUSED
from holdfast.dispatcher.shared.value import value
from holdfast.sink.contract.states import (
    BreakerState,
    DeadReason,
    Outcome,
)


@value
class Entry:
    """One claimed entry. `number` is that of the attempt that this claim will make, from 1.

    `rescued` is how many earlier attempts used up no step of the schedule: they ended with their
    lease, by an internal error, or as `Attempt.takes_step` says.
    """

    sequence: int
    number: int
    key: UUID
    created_at: datetime
    traceparent: str | None
    body: bytes = field(repr=False)
    rescued: int = 0
    forgotten: bool = False
    """Whether its first attempt is older than its receiver's key-retention window."""


@value
class Lane:
    """One endpoint and one subject under a lease, with the entries to send in this order.

    The lease may be trusted until `trusted_until`, in seconds of this process's clock: earlier than
    the database's deadline, because it is measured from before the claim was sent.
    """

    endpoint_id: int
    subject_id: int
    token: UUID
    delivered_sequence: int
    entries: tuple[Entry, ...]
    trusted_until: float
    """Deadline of attempts; under a rate limit it is earlier than that of the lease."""
    settle_until: float | None = None
    """Deadline of storing its result; None: `trusted_until`."""
    claimed_at: float = 0.0
    """This process's clock from before the claim."""
    tried_seconds: float = 0.0
    """How long the head has been tried, by its endpoint's running clock."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A due lane whose next entry is missing; `found` is the first existing one, if any."""

    endpoint_id: int
    subject_id: int
    delivered_sequence: int
    found: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of a claim: leased lanes, and lanes that it could not lease."""

    lanes: Sequence[Lane]
    gaps: Sequence[Gap]
    held: Sequence[int] = ()
    """Endpoints on hold, by their breaker or by Retry-After."""
    closed: Sequence[int] = ()
    """Endpoints whose slow start is over: the claim closed their breaker."""
    paced: Mapping[int, int] = field(default_factory=dict)
    """Endpoints with a rate limit, with the number of lanes that it allowed."""
    again_seconds: float | None = None
    """Seconds until a rate allows the next lane, where one allowed none."""


@value
class Attempt:
    """One attempt and its outcome. `asked_seconds` is the receiver's Retry-After.

    `ours`: it failed by an internal error or was cancelled by a stop, and says nothing about the
    receiver. `other_key` is the key in the answer where that is not `key`. `barred`: the address
    guard refused the endpoint, not the entry. `window_shrunk`: the receiver states a shorter
    key-retention window than before, or than the endpoint's retries need.
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
    window_shrunk: bool = False

    @property
    def put_off(self) -> bool:
        """Whether the receiver sent a Retry-After, which is an instruction and not a failure.

        0 seconds does not count: the entry would be sent again and again without taking a step.
        """
        return self.outcome is Outcome.THROTTLED and bool(self.asked_seconds)

    @property
    def credentials_refused(self) -> bool:
        """Whether the receiver refused who sends: a fault of the endpoint, not of the entry."""
        return self.outcome is Outcome.FAILED and self.status in CREDENTIALS_REFUSED

    @property
    def takes_step(self) -> bool:
        """Whether it uses up a step of the schedule."""
        return not (self.put_off or self.barred or self.credentials_refused)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that is not retried; a person decides what happens to it."""

    sequence: int
    key: UUID
    created_at: datetime
    reason: DeadReason
    detail: str
    attempts: int


@value
class Settlement:
    """The result of a lane; the database stores it only while `token` is the lane's.

    `attempt` is the number of attempts that the next entry has had, 0 where the recorded attempts
    decide, and `rescued` how many of them used up no step of the schedule. `delay_us` is set for a
    retry. `disable` is the reason to disable the whole endpoint.
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
    """Number of claimed entries that were not sent."""
    asked_us: int = 0
    """The Retry-After of the next entry, which counts towards its budget."""


@dataclass(frozen=True, slots=True)
class PaceChange:
    """A change of an endpoint's pace by results."""

    before: BreakerState
    breaker: BreakerState
    breaker_until: datetime | None
    reason: str | None
    held_until: datetime | None
    """End of a hold that these results caused."""

    @property
    def holds(self) -> bool:
        """Whether the endpoint is on hold now."""
        return self.breaker is BreakerState.OPEN or self.held_until is not None


@value
class Settled:
    """A settlement that the database stored; `due_at` is None for an idle or stopped lane.

    `paced` is set on one settlement of an endpoint whose pace the results changed.
    """

    settlement: Settlement
    due_at: datetime | None
    paced: PaceChange | None = None


@dataclass(frozen=True, slots=True)
class Rescued:
    """An entry whose lease ended: one attempt with outcome `unknown`."""

    endpoint_id: int
    subject_id: int
    sequence: int
    number: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How many lanes of each endpoint a claim may take, and the lease."""

    lanes: Mapping[int, int]
    token: UUID
    lease_seconds: float
    entries_per_lane: int


@dataclass(frozen=True, slots=True)
class Routed:
    """The result of one routing transaction."""

    batches: int
    lanes: int
    priorities: Sequence[Sequence[int]] = field(default=(), compare=False)
    """Endpoints with the priorities of these lanes, which a claim must scan."""


@dataclass(frozen=True, slots=True)
class Instance:
    """This process in `dispatcher_instance`."""

    id: UUID
    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat has found."""

    at: datetime
    """The database's time."""
    batches: bool
    """Whether a batch is unrouted."""
    replays: bool
    """Whether a replay is being applied."""


@dataclass(frozen=True, slots=True)
class OldDays:
    """The days of entries and attempts that are past their retention."""

    today: date
    """By the database's clock, UTC."""
    days: Sequence[tuple[str, date]]
    """Table and day, entries first, oldest first."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning one day."""

    outcome: str
    """`dropped`; `refused`: it has undelivered entries; `busy`: in use; `gone`: does not exist."""
    row_count: int | None
    bytes: int | None
    waiting: int | None
    unrouted: int | None
    dead_letters: int | None
    abandoned: int | None
    """Undelivered entries of disabled endpoints, which do not prevent dropping."""
    endpoints: Sequence[str] | None
    """The endpoints of `waiting` and `dead_letters`."""
