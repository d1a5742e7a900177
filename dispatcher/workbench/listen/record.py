"""What arrived so far, and what can be said about it from outside. Pure.

A receiver cannot see the outbox. What it can know is this:

    attempted      requests that came to the path, verified or refused
    acknowledged   different keys that were answered 2xx
    duplicated     deliveries that came again with their key and the same body; harmless
    conflicting    deliveries that came with a known key and another body
    out of order   a key that is new and comes after a higher sequence of its subject, or a
                   sequence that comes while a lower one still has to be sent again
    missing        sequences between the lowest and the highest of a subject that never came
    lost           keys that were expected and were never acknowledged; where nobody said which
                   are expected, the missing sequences

A sequence that an endpoint's type filter left out looks missing too, so `gaps_allowed` does not
count those as lost.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

from dispatcher.shared.outcome import Response, classify
from dispatcher.workbench.listen.arrival import FAILED, REFUSED, Arrival
from sink.contract.states import Outcome
from sink.contract.wire import ReceiptOutcome

_FINAL = frozenset({Outcome.REJECTED, Outcome.GONE})
SHOWN_MAX = 20


@dataclass(slots=True)
class _Subject:
    lowest: int
    highest: int
    seen: set[int] = field(default_factory=set)
    owed: dict[int, str] = field(default_factory=dict)
    """Sequence and key of what the sender has to send again."""

    @property
    def missing(self) -> int:
        return self.highest - self.lowest + 1 - len(self.seen)


@dataclass(frozen=True, slots=True)
class Report:
    """The end of the story; `degraded` when something needs a person."""

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
    """Answers that could not be written: the sender had hung up."""
    owed: int
    """Keys that came and were never acknowledged: the sender has to send them again."""
    missing_sequences: int
    missing_shown: tuple[tuple[str, int], ...]
    """The first of them: subject and sequence."""
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
        """Whether deliveries were lost, out of order, in conflict, or none of ours."""
        return bool(self.lost or self.out_of_order or self.conflicting or self.refused)


class Record:
    """Not safe for several threads at once: its owner takes a lock."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._acknowledged: dict[str, int] = {}
        """How many answers of 2xx each key was written."""
        self._subjects: dict[str, _Subject] = {}

    @property
    def acknowledged(self) -> int:
        """How many different keys were answered 2xx."""
        return self._counts["acknowledged"]

    def add(self, arrival: Arrival) -> None:
        """Take note of an arrival, as soon as its answer is decided and before it is written.

        So whatever the sender does on the answer comes later here too.
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
        """Take back the acknowledgement of this arrival, which could not be written.

        Those of other arrivals with its key stand.
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
        """Return what can be said now. `expected` are keys that should have been acknowledged."""
        missing = sum(subject.missing for subject in self._subjects.values())
        done = {key for key, written in self._acknowledged.items() if written}
        wanted = None if expected is None else set(expected)
        lost_keys = sorted((wanted or set()) - done)
        gaps = 0 if gaps_allowed else missing
        lost = gaps if wanted is None else len(lost_keys)
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
            expected=None if wanted is None else len(wanted),
            lost=lost,
            lost_shown=tuple(lost_keys[:SHOWN_MAX]),
            unexpected=None if wanted is None else len(self._acknowledged.keys() - wanted),
            subjects=len(self._subjects),
            without_subject=counts["without_subject"],
            refused=dict(sorted(self._refused.items())),
        )

    def _missing(self) -> Iterator[tuple[str, int]]:
        for name, subject in self._subjects.items():
            seen = sorted(subject.seen)
            for before, after in pairwise(seen):
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
        late = key not in self._acknowledged and bool(subject.seen) and sequence <= subject.highest
        overtakes = any(owed < sequence for owed in subject.owed)
        self._counts["out_of_order"] += late or overtakes
        subject.seen.add(sequence)
        subject.lowest = min(subject.lowest, sequence)
        subject.highest = max(subject.highest, sequence)
        if _comes_again(arrival):
            subject.owed[sequence] = key
        else:
            subject.owed.pop(sequence, None)


def _comes_again(arrival: Arrival) -> bool:
    """Return whether a sender has to send this delivery again: it is told to, or told nothing."""
    if arrival.acknowledged:
        return False
    return arrival.status is None or classify(Response(arrival.status)) not in _FINAL
