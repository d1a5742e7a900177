"""Why an entry is where it is at an endpoint: one answer, and the command that resolves it.

The facts are a row of `why_standing.sql` and what is the same for every endpoint (`Around`). Where
several things hold an entry up, the answer is the one that a person has to deal with first, and the
others stand behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.operators.why import words
from dispatcher.operators.why.lock_holders import Holder, row_holder
from dispatcher.operators.why.words import Facts
from sink.contract.states import BreakerState, EndpointState

PATIENCE = timedelta(seconds=60)
"""How long something that is due, or a batch, may wait for a living dispatcher without a word."""


class Verdict(StrEnum):
    """What `holdfast why` can say; programs may rely on these words."""

    DELIVERED = "delivered"
    NOTHING_WAITS = "nothing_waits"
    """Of a subject: everything for the endpoint was settled."""

    DEAD = "dead"
    GIVEN_UP = "given_up"
    """Dead, and a person resolved it."""

    PASSED = "passed"
    NOT_TAKEN = "not_taken"
    BEFORE_START = "before_start"

    UNROUTED = "unrouted"
    NOT_ROUTED = "not_routed"
    """Unrouted for longer than `PATIENCE`, with a dispatcher alive."""

    NOT_BACKFILLED = "not_backfilled"
    """The endpoint wants everything from the beginning, and its lanes were not made to the end."""

    LOST_ROUTE = "lost_route"
    """Its batch is routed and its lane does not reach it."""

    BEHIND = "behind"
    """Another entry of its subject goes first; `Answer.behind` says why that has not gone."""

    GAP = "gap"
    STOPPED = "stopped"
    PAUSED = "paused"
    DISABLED = "disabled"
    NO_DISPATCHER = "no_dispatcher"
    LOCKED = "locked"
    """Somebody's transaction holds a row that delivery needs."""

    SENDING = "sending"
    LEASE_OVER = "lease_over"
    BREAKER_OPEN = "breaker_open"
    RECEIVER_ASKED = "receiver_asked"
    RETRY = "retry"
    DUE = "due"
    NOT_CLAIMED = "not_claimed"
    """Due for longer than `PATIENCE`, with a dispatcher alive and nothing under way."""

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
        Verdict.NO_DISPATCHER,
        Verdict.LOCKED,
        Verdict.NOT_CLAIMED,
        Verdict.QUARANTINED,
        Verdict.NO_ENDPOINT,
    }
)
"""What does not go on by itself."""

AT_REST = frozenset(
    {
        Verdict.DELIVERED,
        Verdict.NOTHING_WAITS,
        Verdict.GIVEN_UP,
        Verdict.PASSED,
        Verdict.NOT_TAKEN,
        Verdict.BEFORE_START,
        Verdict.SUPPRESSED,
        Verdict.PRUNED,
    }
)
"""What is over: nothing is going to happen any more."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The entry that is asked about."""

    key: str
    subject: str
    sequence: int
    type: str
    created_at: datetime
    batch: Facts
    """`stream`, `batch_id`, `written_at`, `routed_at`, and the `xmax` of its row."""


@dataclass(frozen=True, slots=True)
class Around:
    """What is the same for every endpoint, as of `at`, by the database's clock."""

    at: datetime
    dispatchers: Sequence[Facts]
    """Rows of `why_dispatchers.sql`, also of those that are dead."""
    sessions: Sequence[Facts]
    """Rows of `why_sessions.sql`."""

    @property
    def alive(self) -> list[Facts]:
        """The dispatchers that claim: they gave a sign of life, and are not winding down."""
        return [each for each in self.dispatchers if each["alive"] and not each["draining"]]


@dataclass(frozen=True, slots=True)
class Ahead:
    """The entry that goes first in the lane, and why it has not gone."""

    key: str
    sequence: int
    answer: "Answer"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `command` resolves it; None where nothing is to be done."""

    verdict: Verdict
    sentence: str
    command: str | None = None
    also: tuple[str, ...] = field(default=())
    """What holds it up besides, in words."""
    behind: Ahead | None = None
    """What goes first; the command is then that entry's."""
    holder: Holder | None = None

    @property
    def needs_a_person(self) -> bool:
        """Whether it, or what goes first, does not go on by itself."""
        return self.verdict in NEEDS_A_PERSON or (
            self.behind is not None and self.behind.answer.needs_a_person
        )


def judge(row: Facts, entry: Subject, around: Around, ahead: Ahead | None = None) -> Answer:
    """Return why `entry` stands where it stands at the endpoint of `row`.

    `ahead` is what goes first where that is another entry.
    """
    if row["delivered_number"] is not None:
        return Answer(Verdict.DELIVERED, words.delivered(row))
    if row["dead_letter"] is not None:
        # Sent again, it would wait for this: a person has to know both.
        also = () if row["endpoint_state"] == EndpointState.ACTIVE else (words.state(row),)
        return Answer(
            Verdict.DEAD, words.dead(row), words.redeliver(entry.key, row["endpoint"]), also
        )
    last = row["last_sequence"]
    not_taken = Answer(Verdict.NOT_TAKEN, words.not_taken(row, entry.type))
    if not row["attempts"]:
        if not _taken(row, entry):
            return not_taken
        if row["before_start"]:
            return Answer(Verdict.BEFORE_START, words.before_start(row))
    if last is None or last < entry.sequence:
        return _unrouted(row, entry, around)
    if _behind_it(row, entry):
        if row["resolution"] is not None:
            return Answer(Verdict.GIVEN_UP, words.given_up(row))
        return Answer(Verdict.PASSED, words.passed(row))
    if not _taken(row, entry):
        return not_taken  # tried before the endpoint was changed; its lane passes it
    if _missing(row):
        missing = row["lane_delivered_sequence"] + 1
        way_out = words.pass_missing(entry.subject, row["endpoint"])
        return Answer(Verdict.GAP, words.gap(entry.subject, missing), way_out)
    if ahead is not None:
        sentence = words.behind(ahead.sequence, ahead.key)
        return Answer(Verdict.BEHIND, sentence, ahead.answer.command, behind=ahead)
    return _waiting(row, entry, around)


def _behind_it(row: Facts, entry: Subject) -> bool:
    """Whether the lane has passed the entry."""
    reached = row["lane_delivered_sequence"]
    return reached is not None and bool(reached >= entry.sequence)


def _taken(row: Facts, entry: Subject) -> bool:
    return not row["types"] or entry.type in row["types"]


def _missing(row: Facts) -> bool:
    """Whether a sequence is not stored that the lane waits for; of some types, none is."""
    head = row["head_sequence"]
    if row["types"]:
        return False
    return head is None or bool(head > row["lane_delivered_sequence"] + 1)


def _unrouted(row: Facts, entry: Subject, around: Around) -> Answer:
    routed_at, written_at = entry.batch["routed_at"], entry.batch["written_at"]
    if routed_at is not None:
        if row["starts_at"] is None and row["added_at"] > routed_at:
            said = words.not_backfilled(row)
            return Answer(Verdict.NOT_BACKFILLED, said, words.backfill(row["endpoint"]))
        # An endpoint that was never changed since it was added, whatever the clock was then.
        if row["changed_at"] > max(routed_at, row["added_at"]):
            return Answer(Verdict.NOT_TAKEN, words.not_taken_then(routed_at))
        said = words.lost_route(entry.batch)
        return Answer(Verdict.LOST_ROUTE, said, words.backfill(row["endpoint"]))
    found = [*_nobody(around), *_locked([entry.batch["xmax"]], around)]
    if found:
        batch = words.unrouted(entry.batch, around.at)
        return replace(found[0], sentence=f"{batch}; {found[0].sentence}", also=_also(found))
    late = around.at - written_at > PATIENCE
    verdict = Verdict.NOT_ROUTED if late else Verdict.UNROUTED
    command = words.LOGS if late else None
    return Answer(verdict, words.unrouted(entry.batch, around.at), command)


def _waiting(row: Facts, entry: Subject, around: Around) -> Answer:
    """Judge the head of its lane."""
    if row["lease_until"] is not None and row["lease_until"] > around.at:
        return Answer(Verdict.SENDING, words.sending(row, around.dispatchers, around.at))
    found = list(_obstacles(row, entry, around))
    if not found:
        return _due(row, around)
    return replace(found[0], also=_also(found))


def _obstacles(row: Facts, entry: Subject, around: Around) -> Iterator[Answer]:
    """Yield everything that keeps a head from being sent, what a person has to do first first."""
    state, name = row["endpoint_state"], row["endpoint"]
    over = row["lease_until"] is not None
    if row["due_at"] is None and not over:
        yield Answer(Verdict.STOPPED, words.STOPPED, words.redeliver(entry.key, name))
    if state != EndpointState.ACTIVE:
        verdict = Verdict.PAUSED if state == EndpointState.PAUSED else Verdict.DISABLED
        yield Answer(verdict, words.state(row), words.resume(name))
    yield from _nobody(around)
    yield from _locked(row["transactions"], around)
    if over:
        yield Answer(Verdict.LEASE_OVER, words.lease_over(row, around.at))
    if row["breaker"] in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        yield Answer(Verdict.BREAKER_OPEN, words.breaker(row), f"holdfast endpoint show {name}")
    if row["held_until"] is not None and row["held_until"] > around.at:
        yield Answer(Verdict.RECEIVER_ASKED, words.receiver_asked(row))
    if row["due_at"] is not None and row["due_at"] > around.at:
        yield Answer(Verdict.RETRY, words.retry(row, around.at))


def _due(row: Facts, around: Around) -> Answer:
    # What has a rate is due for long, and is paid for now and then.
    paid = row["rate_per_second"] is not None and around.at - row["paid_until"] < PATIENCE
    served = row["leased_lanes"] or paid
    if served or around.at - row["due_at"] <= PATIENCE:
        return Answer(Verdict.DUE, words.due(row, around.at))
    return Answer(Verdict.NOT_CLAIMED, words.not_claimed(row, around.at), words.CONFIG_CHECK)


def _nobody(around: Around) -> Iterator[Answer]:
    if not around.alive:
        sentence = words.no_dispatcher(around.dispatchers, around.at)
        yield Answer(Verdict.NO_DISPATCHER, sentence, "holdfast dispatch")


def _locked(transactions: Sequence[str], around: Around) -> Iterator[Answer]:
    holder = row_holder(around.sessions, transactions)
    if holder is not None:
        yield Answer(Verdict.LOCKED, words.locked(holder), holder.command, holder=holder)


def _also(found: Sequence[Answer]) -> tuple[str, ...]:
    return tuple(each.sentence for each in found[1:])
