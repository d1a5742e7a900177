"""Why an entry is in its state at an endpoint: one answer, and the command that resolves it. Pure.

The facts are a row of `why/standing` and what is the same for every endpoint (`Conditions`).
With several causes, the answer is the one that a person must resolve first; `also` has the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.dispatcher.operators.why import words
from holdfast.dispatcher.operators.why.lock_holders import Holder, row_holder
from holdfast.dispatcher.operators.why.words import Facts
from holdfast.sink.contract.states import BreakerState, EndpointState

PATIENCE = timedelta(seconds=60)
"""How long a due entry, or a batch, may wait for a living dispatcher before that is a fault."""


class Verdict(StrEnum):
    """The answers of `holdfast why`, a stable vocabulary for programs."""

    DELIVERED = "delivered"
    NOTHING_WAITS = "nothing_waits"
    """Of a subject: nothing is left to deliver to the endpoint."""

    DEAD = "dead"
    CANCELLED = "cancelled"
    """A person cancelled it before it left."""

    GIVEN_UP = "given_up"
    """A dead letter that a person resolved."""

    PASSED = "passed"
    NOT_TAKEN = "not_taken"
    BEFORE_START = "before_start"

    UNROUTED = "unrouted"
    NOT_ROUTED = "not_routed"
    """Unrouted for longer than `PATIENCE`, with a dispatcher alive."""

    NOT_BACKFILLED = "not_backfilled"
    """The endpoint gets entries from the beginning, and its backfill is not complete."""

    LOST_ROUTE = "lost_route"
    """Its batch is routed and its lane does not reach it."""

    BEHIND = "behind"
    """Another entry of its subject goes first; `Answer.behind` says why that one waits."""

    GAP = "gap"
    STOPPED = "stopped"
    PAUSED = "paused"
    DISABLED = "disabled"
    ON_HOLD = "on_hold"
    """An operator holds its subject at the endpoint."""

    CANNOT_WRITE = "cannot_write"
    NO_DISPATCHER = "no_dispatcher"
    LOCKED = "locked"
    """Another transaction holds a row that delivery needs."""

    SENDING = "sending"
    LEASE_OVER = "lease_over"
    BREAKER_OPEN = "breaker_open"
    RECEIVER_ASKED = "receiver_asked"
    RETRY = "retry"
    DUE = "due"
    NOT_CLAIMED = "not_claimed"
    """Due for longer than `PATIENCE`, with a dispatcher alive and nothing in flight."""

    SUPPRESSED = "suppressed"
    PRUNED = "pruned"
    QUARANTINED = "quarantined"
    UNKNOWN = "unknown"
    NO_ENDPOINT = "no_endpoint"


NEEDS_A_PERSON = frozenset(
    {
        Verdict.DEAD,
        Verdict.NOT_ROUTED,
        Verdict.NOT_BACKFILLED,
        Verdict.LOST_ROUTE,
        Verdict.GAP,
        Verdict.STOPPED,
        Verdict.PAUSED,
        Verdict.DISABLED,
        Verdict.ON_HOLD,
        Verdict.CANNOT_WRITE,
        Verdict.NO_DISPATCHER,
        Verdict.LOCKED,
        Verdict.NOT_CLAIMED,
        Verdict.QUARANTINED,
        Verdict.NO_ENDPOINT,
    }
)
"""Verdicts that do not resolve by themselves."""

AT_REST = frozenset(
    {
        Verdict.DELIVERED,
        Verdict.NOTHING_WAITS,
        Verdict.CANCELLED,
        Verdict.GIVEN_UP,
        Verdict.PASSED,
        Verdict.NOT_TAKEN,
        Verdict.BEFORE_START,
        Verdict.SUPPRESSED,
        Verdict.PRUNED,
    }
)
"""Final verdicts: nothing more happens."""


@dataclass(frozen=True, slots=True)
class ExplainedEntry:
    """The entry to explain."""

    key: str
    subject: str
    sequence: int
    type: str
    written_at: datetime
    batch: Facts
    """`stream`, `batch_id`, `written_at`, `routed_at`, and the `xmax` of its row."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is the same for every endpoint, at `at` by the database's clock."""

    at: datetime
    dispatchers: Sequence[Facts]
    """Rows of `why/dispatchers`, also of crashed ones."""
    sessions: Sequence[Facts]
    """Rows of `why/sessions`."""
    read_only: bool = False
    """Whether the server refuses every write."""

    @property
    def alive(self) -> list[Facts]:
        """The dispatchers that claim: with a recent heartbeat, and not draining."""
        return [each for each in self.dispatchers if each["alive"] and not each["draining"]]


@dataclass(frozen=True, slots=True)
class LaneHead:
    """The entry at the head of the lane, and why it waits."""

    key: str
    sequence: int
    answer: "Answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `command` resolves it; None when there is nothing to do."""

    verdict: Verdict
    sentence: str
    command: str | None = None
    also: tuple[str, ...] = field(default=())
    """Sentences with further causes."""
    behind: LaneHead | None = None
    """The head of the lane, if that is another entry; `command` is then of that entry."""
    holder: Holder | None = None

    @property
    def needs_a_person(self) -> bool:
        """Whether it, or the head of its lane, does not resolve by itself."""
        return self.verdict in NEEDS_A_PERSON or (
            self.behind is not None and self.behind.answer.needs_a_person
        )


def judge(
    row: Facts, entry: ExplainedEntry, conditions: Conditions, lane_head: LaneHead | None = None
) -> Answer:
    """Return why `entry` is in its state at the endpoint of `row`.

    `lane_head` is the head of the lane if that is another entry.
    """
    if row["cancelled"] is not None:
        return Answer(Verdict.CANCELLED, words.cancelled(row["cancelled"]))
    if row["delivered_number"] is not None:
        return Answer(Verdict.DELIVERED, words.delivered(row))
    if row["dead_letter"] is not None:
        # A redelivery would wait for this too, so a person has to know both.
        also = [] if row["endpoint_state"] == EndpointState.ACTIVE else [words.state(row)]
        also += [] if row["on_hold"] is None else [words.on_hold(row["on_hold"])]
        command = words.redeliver(entry.key, row["endpoint"])
        return Answer(Verdict.DEAD, words.dead(row), command, tuple(also))
    last = row["last_sequence"]
    not_taken = Answer(Verdict.NOT_TAKEN, words.not_taken(row, entry.type))
    if not row["attempts"]:
        if not _taken(row, entry):
            return not_taken
        if row["before_start"]:
            return Answer(Verdict.BEFORE_START, words.before_start(row))
    if last is None or last < entry.sequence:
        return _unrouted(row, entry, conditions)
    if _behind_it(row, entry):
        if row["resolution"] is not None:
            return Answer(Verdict.GIVEN_UP, words.given_up(row))
        return Answer(Verdict.PASSED, words.passed(row))
    if not _taken(row, entry):
        return not_taken  # tried before the endpoint was changed; its lane skips it
    if _missing(row):
        missing = row["lane_delivered_sequence"] + 1
        way_out = words.pass_missing(entry.subject, row["endpoint"])
        return Answer(Verdict.GAP, words.gap(entry.subject, missing), way_out)
    if lane_head is not None:
        sentence = words.behind(lane_head.sequence, lane_head.key)
        return Answer(Verdict.BEHIND, sentence, lane_head.answer.command, behind=lane_head)
    return _waiting(row, entry, conditions)


def _behind_it(row: Facts, entry: ExplainedEntry) -> bool:
    """Return whether the lane has passed the entry."""
    reached = row["lane_delivered_sequence"]
    return reached is not None and bool(reached >= entry.sequence)


def _taken(row: Facts, entry: ExplainedEntry) -> bool:
    return row["takes_stream"] and (not row["types"] or entry.type in row["types"])


def _missing(row: Facts) -> bool:
    """Return whether the lane waits for a sequence that is not stored.

    A lane that takes only some types or streams skips over gaps, so it never does.
    """
    head = row["head_sequence"]
    if row["types"] or row["streams"]:
        return False
    return head is None or bool(head > row["lane_delivered_sequence"] + 1)


def _unrouted(row: Facts, entry: ExplainedEntry, conditions: Conditions) -> Answer:
    routed_at, written_at = entry.batch["routed_at"], entry.batch["written_at"]
    if routed_at is not None:
        if row["starts_at"] is None and row["added_at"] > routed_at:
            sentence = words.not_backfilled(row)
            return Answer(Verdict.NOT_BACKFILLED, sentence, words.backfill(row["endpoint"]))
        # `max`: an endpoint that was never changed has both times equal, even after a clock change.
        if row["changed_at"] > max(routed_at, row["added_at"]):
            return Answer(Verdict.NOT_TAKEN, words.not_taken_then(routed_at))
        sentence = words.lost_route(entry.batch)
        return Answer(Verdict.LOST_ROUTE, sentence, words.backfill(row["endpoint"]))
    causes = [*_no_dispatcher(conditions), *_locked([entry.batch["xmax"]], conditions)]
    if causes:
        batch = words.unrouted(entry.batch, conditions.at)
        return replace(causes[0], sentence=f"{batch}; {causes[0].sentence}", also=_also(causes))
    late = conditions.at - written_at > PATIENCE
    verdict = Verdict.NOT_ROUTED if late else Verdict.UNROUTED
    command = words.LOGS if late else None
    return Answer(verdict, words.unrouted(entry.batch, conditions.at), command)


def _waiting(row: Facts, entry: ExplainedEntry, conditions: Conditions) -> Answer:
    """Return why the head of a lane waits."""
    if row["lease_until"] is not None and row["lease_until"] > conditions.at:
        also = () if row["on_hold"] is None else (words.on_hold(row["on_hold"]),)
        sentence = words.sending(row, conditions.dispatchers, conditions.at)
        return Answer(Verdict.SENDING, sentence, also=also)
    causes = list(_obstacles(row, entry, conditions))
    if not causes:
        return _due(row, conditions)
    return replace(causes[0], also=_also(causes))


def _obstacles(row: Facts, entry: ExplainedEntry, conditions: Conditions) -> Iterator[Answer]:
    """Yield all obstacles to sending a head, first the one that a person must resolve first."""
    state, name = row["endpoint_state"], row["endpoint"]
    over = row["lease_until"] is not None
    if row["due_at"] is None and not over:
        yield Answer(Verdict.STOPPED, words.STOPPED, words.redeliver(entry.key, name))
    if state != EndpointState.ACTIVE:
        verdict = Verdict.PAUSED if state == EndpointState.PAUSED else Verdict.DISABLED
        yield Answer(verdict, words.state(row), words.resume(name))
    if row["on_hold"] is not None:
        sentence = words.on_hold(row["on_hold"])
        yield Answer(Verdict.ON_HOLD, sentence, words.resume_subject(entry.subject, name))
    yield from _no_dispatcher(conditions)
    yield from _locked(row["transactions"], conditions)
    if over:
        yield Answer(Verdict.LEASE_OVER, words.lease_over(row, conditions.at))
    if row["breaker"] in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        yield Answer(Verdict.BREAKER_OPEN, words.breaker(row), f"holdfast endpoint show {name}")
    if row["held_until"] is not None and row["held_until"] > conditions.at:
        yield Answer(Verdict.RECEIVER_ASKED, words.receiver_asked(row))
    if row["due_at"] is not None and row["due_at"] > conditions.at and row["on_hold"] is None:
        yield Answer(Verdict.RETRY, words.retry(row, conditions.at))


def _due(row: Facts, conditions: Conditions) -> Answer:
    # An endpoint with a rate limit may have due lanes for long, but claims advance `paid_until`.
    paid = row["rate_per_second"] is not None and conditions.at - row["paid_until"] < PATIENCE
    served = row["leased_lanes"] or paid
    if served or conditions.at - row["due_at"] <= PATIENCE:
        return Answer(Verdict.DUE, words.due(row, conditions.at))
    return Answer(Verdict.NOT_CLAIMED, words.not_claimed(row, conditions.at), words.CONFIG_CHECK)


def _no_dispatcher(conditions: Conditions) -> Iterator[Answer]:
    if conditions.read_only:
        yield Answer(Verdict.CANNOT_WRITE, words.CANNOT_WRITE, "holdfast database")
    if not conditions.alive:
        sentence = words.no_dispatcher(conditions.dispatchers, conditions.at)
        yield Answer(Verdict.NO_DISPATCHER, sentence, "holdfast dispatch")


def _locked(transactions: Sequence[str], conditions: Conditions) -> Iterator[Answer]:
    holder = row_holder(conditions.sessions, transactions)
    if holder is not None:
        yield Answer(Verdict.LOCKED, words.locked(holder), holder.command, holder=holder)


def _also(causes: Sequence[Answer]) -> tuple[str, ...]:
    return tuple(each.sentence for each in causes[1:])
