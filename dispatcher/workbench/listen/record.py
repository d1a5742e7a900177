"""The arrivals so far, and the counts that a receiver can derive from them. Pure.

A receiver cannot see the outbox. It can count:

    attempted      requests to the path, verified or refused
    acknowledged   distinct keys answered with 2xx
    duplicated     deliveries received again with the same key and body; harmless
    conflicting    deliveries with a known key and a different body
    out of order   a new key that arrives after a higher sequence of its subject, or a sequence
                   that arrives while a lower one still has to be retried
    missing        sequences between the lowest and the highest of a subject that never arrived
    lost           expected keys that were never acknowledged; without a list of expected keys,
                   the missing sequences

A sequence that the endpoint's type filter leaves out also looks missing; `gaps_allowed` does not
count missing sequences as lost.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, pairwise
from typing import Any

from holdfast.dispatcher.shared.outcome import Response, classify
from holdfast.sink.contract.states import Outcome
from holdfast.sink.contract.wire import ReceiptOutcome

REFUSED = "refused"
"""Not a genuine delivery; `reason` says why."""
FAILED = "failed"
"""A delivery that was failed on purpose and not applied."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A received request. A refused one has no `type` or `key`: its body is not parsed."""

    number: int
    """From 1, in the order of arrival."""
    at: datetime
    outcome: str
    """A `ReceiptOutcome`, `refused` or `failed`."""
    status: int | None
    """The status of the answer; None: the connection is cut after applying."""
    bytes: int
    """Size of the body."""
    reason: str | None = None
    detail: str | None = None
    type: str | None = None
    subject: str | None = None
    sequence: int | None = None
    key: str | None = None
    timestamp: datetime | None = None
    """When the decision occurred."""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def acknowledged(self) -> bool:
        """Whether the answer acknowledges the delivery."""
        return self.key is not None and self.status is not None and 200 <= self.status <= 299


_FINAL = frozenset({Outcome.REJECTED, Outcome.GONE})
SHOWN_MAX = 20


@dataclass(slots=True)
class _Subject:
    lowest: int
    highest: int
    seen: set[int] = field(default_factory=set)
    owed: dict[int, str] = field(default_factory=dict)
    """Sequence to key, for deliveries that the sender has to retry."""

    @property
    def missing(self) -> int:
        return self.highest - self.lowest + 1 - len(self.seen)


@dataclass(frozen=True, slots=True)
class Report:
    """The counts; `degraded` if something needs attention."""

    attempted: int
    acknowledged: int
    applied: int
    duplicated: int
    conflicting: int
    stale: int
    out_of_order: int
    failed_on_purpose: int
    cut_on_purpose: int
    unanswered: int
    """Answers that could not be written because the sender disconnected."""
    owed: int
    """Keys that arrived and were never acknowledged: the sender has to retry them."""
    missing_sequences: int
    missing_shown: tuple[tuple[str, int], ...]
    """The first missing ones, as subject and sequence."""
    expected: int | None
    lost: int
    lost_shown: tuple[str, ...]
    """The first expected keys that were never acknowledged."""
    unexpected: int | None
    subjects: int
    without_subject: int
    refused: dict[str, int]
    """Refused requests by reason."""

    @property
    def degraded(self) -> bool:
        """Whether deliveries were lost, out of order, in conflict or refused."""
        return bool(self.lost or self.out_of_order or self.conflicting or self.refused)


class Record:
    """Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._acknowledged: dict[str, int] = {}
        """Number of 2xx answers written for each key."""
        self._subjects: dict[str, _Subject] = {}

    @property
    def acknowledged(self) -> int:
        """Number of distinct keys answered with 2xx."""
        return self._counts["acknowledged"]

    def add(self, arrival: Arrival) -> None:
        """Record an arrival after its answer is decided and before it is written.

        So the sender's reaction to the answer is always recorded later.
        """
        self._counts["attempted"] += 1
        if arrival.outcome == REFUSED or arrival.key is None:
            self._refused[arrival.reason or REFUSED] += 1
            return
        self._counts[arrival.outcome] += 1
        self._counts["cut"] += arrival.status is None
        self._order(arrival, arrival.key)
        written = self._acknowledged.get(arrival.key, 0)
        self._acknowledged[arrival.key] = written + arrival.acknowledged
        self._counts["acknowledged"] += arrival.acknowledged and not written

    def unanswered(self, arrival: Arrival) -> None:
        """Undo the acknowledgement of this arrival, because its answer could not be written.

        Acknowledgements of other arrivals with the same key remain.
        """
        self._counts["unanswered"] += 1
        if arrival.key is None or not arrival.acknowledged:
            return
        self._acknowledged[arrival.key] -= 1
        if self._acknowledged[arrival.key]:
            return
        self._counts["acknowledged"] -= 1
        if arrival.subject is not None and arrival.sequence is not None:
            self._subjects[arrival.subject].owed[arrival.sequence] = arrival.key

    def report(
        self, expected: Collection[str] | None = None, *, gaps_allowed: bool = False
    ) -> Report:
        """Return the counts so far. `expected` are the keys that should be acknowledged."""
        missing = sum(subject.missing for subject in self._subjects.values())
        done = {key for key, written in self._acknowledged.items() if written}
        expected_keys = None if expected is None else set(expected)
        lost_keys = sorted((expected_keys or set()) - done)
        gaps = 0 if gaps_allowed else missing
        lost = gaps if expected_keys is None else len(lost_keys)
        counts = self._counts
        return Report(
            attempted=counts["attempted"],
            acknowledged=len(done),
            applied=counts[ReceiptOutcome.APPLIED],
            duplicated=counts[ReceiptOutcome.DUPLICATE],
            conflicting=counts[ReceiptOutcome.CONFLICT],
            stale=counts[ReceiptOutcome.STALE],
            out_of_order=counts["out_of_order"],
            failed_on_purpose=counts[FAILED],
            cut_on_purpose=counts["cut"],
            unanswered=counts["unanswered"],
            owed=len(self._acknowledged) - len(done),
            missing_sequences=missing,
            missing_shown=tuple(islice(self._missing(), SHOWN_MAX)),
            expected=None if expected_keys is None else len(expected_keys),
            lost=lost,
            lost_shown=tuple(lost_keys[:SHOWN_MAX]),
            unexpected=None
            if expected_keys is None
            else len(self._acknowledged.keys() - expected_keys),
            subjects=len(self._subjects),
            without_subject=counts["without_subject"],
            refused=dict(sorted(self._refused.items())),
        )

    def _missing(self) -> Iterator[tuple[str, int]]:
        for name, subject in self._subjects.items():
            sequences = sorted(subject.seen)
            for before, after in pairwise(sequences):
                for sequence in range(before + 1, after):
                    yield name, sequence

    def _order(self, arrival: Arrival, key: str) -> None:
        sequence = arrival.sequence
        if arrival.subject is None or sequence is None:
            self._counts["without_subject"] += 1
            return
        subject = self._subjects.get(arrival.subject)
        if subject is None:
            subject = self._subjects[arrival.subject] = _Subject(sequence, sequence)
        is_late = (
            key not in self._acknowledged and bool(subject.seen) and sequence <= subject.highest
        )
        overtakes = any(owed < sequence for owed in subject.owed)
        self._counts["out_of_order"] += is_late or overtakes
        subject.seen.add(sequence)
        subject.lowest = min(subject.lowest, sequence)
        subject.highest = max(subject.highest, sequence)
        if _comes_again(arrival):
            subject.owed[sequence] = key
        else:
            subject.owed.pop(sequence, None)


def _comes_again(arrival: Arrival) -> bool:
    """Return whether the sender has to retry: it got a retryable answer, or none."""
    if arrival.acknowledged:
        return False
    return arrival.status is None or classify(Response(arrival.status)) not in _FINAL
