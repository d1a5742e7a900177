"""How `holdfast listen` handles a request: verify, fail on demand, apply once, record.

It has no socket: the server passes requests in and writes the replies. Thread-safe.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

from holdfast.dispatcher.workbench.listen.misbehaviour import Faults, Misbehaviour, Turn
from holdfast.dispatcher.workbench.listen.record import FAILED, REFUSED, Arrival, Record, Report
from holdfast.receiver.errors import VerificationError
from holdfast.receiver.message.problem import Problem
from holdfast.receiver.message.receipt import Answer, Receipt, answer
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import Delivery, verify
from holdfast.sink.contract.wire import ReceiptOutcome

Fields = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server does. An `answer` of None: close the connection without an answer."""

    arrival: Arrival
    answer: Answer | None
    wait_seconds: float = 0.0
    """Delay before the answer."""


class Listener:
    """One run of `holdfast listen`."""

    def __init__(
        self,
        secrets: Sequence[Secret],
        misbehaviour: Misbehaviour,
        *,
        seed: int,
        subject_member: str,
        on_arrival: Callable[[Arrival], None],
        unanswered: Callable[[Arrival], None],
    ) -> None:
        """`subject_member` is the member of `data` that names the subject.

        `on_arrival` is called with every arrival, in order, one at a time; `unanswered` with an
        arrival whose sender disconnected before the answer.
        """
        self._secrets = tuple(secrets)
        self._misbehaviour = misbehaviour
        self._faults = Faults(misbehaviour, seed)
        self._subject_member = subject_member
        self._on_arrival = on_arrival
        self._unanswered = unanswered
        self._inbox = MemoryInbox()
        self._record = Record()
        self._number = 0
        self._lock = Lock()

    @property
    def acknowledged(self) -> int:
        """Number of distinct keys answered with 2xx."""
        with self._lock:
            return self._record.acknowledged

    def report(self, expected: Collection[str] | None, *, gaps_allowed: bool) -> Report:
        """Return the report so far."""
        with self._lock:
            return self._record.report(expected, gaps_allowed=gaps_allowed)

    def receive(self, headers: Fields, body: bytes) -> Reply:
        """Handle one POST."""
        now = datetime.now(UTC)
        try:
            delivery = verify(headers, body, self._secrets, now=now)
        except VerificationError as error:
            return self.refuse(Problem(error.status, error.reason, error.detail), len(body))
        with self._lock:
            turn = self._faults.turn()
            arrival, reply = self._deal(delivery, turn, now)
            self._note(arrival)
        return Reply(arrival, reply, self._misbehaviour.latency_ms / 1000)

    def refuse(self, problem: Problem, size: int) -> Reply:
        """Refuse a request; `size` is the number of body bytes read."""
        with self._lock:
            arrival = Arrival(
                self._next(),
                datetime.now(UTC),
                REFUSED,
                problem.status,
                size,
                reason=str(problem.reason),
                detail=problem.detail,
            )
            self._note(arrival)
        return Reply(arrival, problem.answer())

    def hung_up(self, arrival: Arrival) -> None:
        """Record that the sender disconnected before its answer was written."""
        with self._lock:
            self._record.unanswered(arrival)
            self._unanswered(arrival)

    def _deal(self, delivery: Delivery, turn: Turn, now: datetime) -> tuple[Arrival, Answer | None]:
        subject = self._subject(delivery)
        outcome, correct = FAILED, None
        if turn.applies:
            receipt = self._inbox.receive(delivery, subject, now)
            outcome, correct = receipt.outcome.value, answer(receipt, delivery.secret)
        reply = correct if turn.status is None else self._wrong(turn.status)
        if turn.cut and outcome == ReceiptOutcome.APPLIED:
            self._faults.cut_made()
            reply = None
        arrival = Arrival(
            self._next(),
            now,
            outcome,
            None if reply is None else reply.status,
            len(delivery.raw),
            type=delivery.body.type,
            subject=subject,
            sequence=delivery.body.sequence,
            key=delivery.key,
            timestamp=delivery.body.timestamp,
            data=delivery.body.data,
        )
        return arrival, reply

    def _wrong(self, status: int) -> Answer:
        """Compose the configured answer; it has no receipt, even for a 2xx."""
        if status < 300:
            return Answer(status, {}, b"")
        made = Problem(status, "on_purpose", "holdfast listen answers this on demand").answer()
        headers = {name: text for name, text in made.headers.items() if name != "connection"}
        if self._misbehaviour.retry_after_seconds is not None:
            headers["retry-after"] = str(self._misbehaviour.retry_after_seconds)
        elif status == 503:
            del headers["retry-after"]  # only if it is configured
        return Answer(status, headers, made.body)

    def _subject(self, delivery: Delivery) -> str | None:
        subject = delivery.body.data.get(self._subject_member)
        return subject if isinstance(subject, str) and subject else None

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _note(self, arrival: Arrival) -> None:
        self._record.add(arrival)
        self._on_arrival(arrival)


@dataclass(frozen=True, slots=True)
class _Stored:
    body_sha256: bytes
    outcome: ReceiptOutcome
    received_at: datetime


class MemoryInbox:
    """The inbox of `holdfast.receiver`, in memory: about 300 bytes a key.

    A key is applied once. The same key with a different body is a conflict. A sequence not above
    the newest of its subject is stale. Not thread-safe: the owner holds a lock.
    """

    def __init__(self) -> None:
        self._stored: dict[str, _Stored] = {}
        self._newest: dict[str, int] = {}

    def receive(self, delivery: Delivery, subject: str | None, now: datetime) -> Receipt:
        """Apply a delivery. Without a subject, sequences are not compared."""
        key, body_sha256 = delivery.key, hashlib.sha256(delivery.raw).digest()
        stored = self._stored.get(key)
        if stored is None:
            outcome = self._fence(subject, delivery.body.sequence)
            self._stored[key] = _Stored(body_sha256, outcome, now)
            return Receipt(key, outcome, now)
        if stored.body_sha256 != body_sha256:
            return Receipt(key, ReceiptOutcome.CONFLICT)
        stale = stored.outcome is ReceiptOutcome.STALE
        outcome_again = ReceiptOutcome.STALE if stale else ReceiptOutcome.DUPLICATE
        return Receipt(key, outcome_again, stored.received_at, replayed=True)

    def _fence(self, subject: str | None, sequence: int) -> ReceiptOutcome:
        if subject is None:
            return ReceiptOutcome.APPLIED
        if sequence <= self._newest.get(subject, 0):
            return ReceiptOutcome.STALE
        self._newest[subject] = sequence
        return ReceiptOutcome.APPLIED
