"""What was sent, compared with what was applied: one entry on both sides at a time. Pure.

`SentEntry` is what this outbox knows of an entry, `ReceiverRecord` what its receiver knows of it.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.dispatcher.outbound.inquiry_answer import ReceiverRecord
from holdfast.dispatcher.shared.value import value
from holdfast.sink.contract.wire import ReceiptOutcome

IN_FLIGHT = "in_flight"
"""The outcome of an entry whose first request is in flight."""


class Finding(StrEnum):
    """The findings about one key; `MEANING` explains each."""

    AGREED = "agreed"
    NEITHER = "neither"
    MISSING_THERE = "missing_there"
    OTHER_BODY = "other_body"
    OTHER_OUTCOME = "other_outcome"
    OTHER_TIME = "other_time"
    STALE_THERE = "stale_there"
    OVERTAKEN = "overtaken"
    UNDELIVERED_HERE = "undelivered_here"
    NO_RECEIPT = "no_receipt"
    ONLY_THERE = "only_there"
    PRUNED_HERE = "pruned_here"


MEANING = {
    Finding.AGREED: "Delivered here and applied there, as the receipt says.",
    Finding.NEITHER: "Tried and not delivered, and unknown there: it was not applied.",
    Finding.MISSING_THERE: (
        "Delivered here, and the receiver does not know the key: it lost the key, as after a"
        " restored backup, or no longer keeps it. If it lost the key, deliver the entry again: the"
        " key keeps it from acting twice."
    ),
    Finding.OTHER_BODY: (
        "The receiver has this key with another body. Somebody else signs with this secret, or one"
        " of the two databases was changed by hand: compare both bodies before anything is sent."
    ),
    Finding.OTHER_OUTCOME: (
        "The receipt and the receiver's table contradict each other. The receipt is signed, so"
        " trust it, and find out what happened to the table."
    ),
    Finding.OTHER_TIME: (
        "The receipt has another time than the receiver's table: the key was processed twice, as"
        " after a restored backup and a repeat. Check whether the action happened twice."
    ),
    Finding.STALE_THERE: (
        "Delivered here, and refused there as stale: it was not applied. The receiver had processed"
        " the same or a higher sequence of the subject, and nothing sent from here explains that:"
        " another outbox sends there too, or the sequences of this one began again, as in a new or"
        " restored database. Later entries are refused too, until their sequences are higher. Check"
        " the receiver's state of the subject, and correct it there."
    ),
    Finding.OVERTAKEN: (
        "Delivered here, and correctly refused there as stale: a later decision of the subject was"
        " sent before, or this one had been applied already. This happens after a skip, a"
        " redelivery, or without order. No action needed."
    ),
    Finding.UNDELIVERED_HERE: (
        "Processed there, and not known here as delivered: the answer was lost, or is in flight. It"
        " is sent again and gets the same answer; only a dead letter waits for a person."
    ),
    Finding.NO_RECEIPT: (
        "Delivered here, without a receipt that proves it. No action needed; with receipts the"
        " receiver's answers can be verified."
    ),
    Finding.ONLY_THERE: (
        "The receiver processed a key that this outbox never had: another outbox sends there too,"
        " or this one was restored from a backup. Otherwise the secret is compromised: rotate it."
    ),
    Finding.PRUNED_HERE: (
        "Delivered here, but the partition of the entry was dropped and there is no receipt:"
        " nothing is left to compare."
    ),
}
"""What each finding means, and what to do."""

NEEDS_A_PERSON = frozenset(
    {
        Finding.MISSING_THERE,
        Finding.OTHER_BODY,
        Finding.OTHER_OUTCOME,
        Finding.OTHER_TIME,
        Finding.STALE_THERE,
    }
)
"""Findings that do not resolve by themselves and that missing receipts do not explain."""

NO_DIFFERENCE = frozenset({Finding.AGREED, Finding.NEITHER})


@value
class Proof:
    """The content of a verified receipt. `applied_at` is the receiver's text, unchanged."""

    outcome: ReceiptOutcome
    applied_at: str


@value
class SentEntry:
    """An entry that was sent, or is being sent, to an endpoint.

    `key` is None when the entry's partition was dropped and no receipt names it. `body_sha256` is
    None when the entry is gone or bodies are not compared. `last` is the outcome of the decisive
    attempt: the delivered one, else the newest.
    """

    key: str | None
    subject: str
    sequence: int
    delivered: bool
    last: str
    proof: Proof | None = None
    body_sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """A key on which the two sides differ, with the record of each."""

    finding: Finding
    entry: SentEntry | None
    record: ReceiverRecord | None

    @property
    def key(self) -> str | None:
        """The key, if one of the sides still has it."""
        return (self.record.key if self.record else None) or (
            self.entry.key if self.entry else None
        )


@dataclass(slots=True)
class Tally:
    """Counts of everything that was compared, and the first differences of each kind."""

    limit: int
    """Maximum number of kept differences of each kind."""
    delivered: int = 0
    undelivered: int = 0
    findings: Counter[Finding] = field(default_factory=Counter)
    receipts: Counter[ReceiptOutcome] = field(default_factory=Counter)
    """Deliveries by the outcome in their receipt."""
    kept: dict[Finding, list[Difference]] = field(default_factory=dict)

    def count(self, entry: SentEntry) -> None:
        """Count an entry of this side."""
        self.delivered += entry.delivered
        self.undelivered += not entry.delivered
        if entry.delivered and entry.proof is not None:
            self.receipts[entry.proof.outcome] += 1

    def add(self, finding: Finding, entry: SentEntry | None, record: ReceiverRecord | None) -> None:
        """Count a finding, and keep it if it is among the first differences of its kind."""
        self.findings[finding] += 1
        if finding not in NO_DIFFERENCE:
            kept = self.kept.setdefault(finding, [])
            if len(kept) < self.limit:
                kept.append(Difference(finding, entry, record))

    @property
    def empty(self) -> bool:
        """Whether nothing was compared."""
        return not (self.delivered or self.undelivered or self.findings)

    @property
    def needs_a_person(self) -> bool:
        """Whether there is a finding of `NEEDS_A_PERSON`."""
        return any(self.findings[each] for each in NEEDS_A_PERSON)

    @property
    def differences(self) -> list[Difference]:
        """The kept differences, in the order of `Finding`."""
        return [each for finding in Finding for each in self.kept.get(finding, [])]


def called_stale(entry: SentEntry, record: ReceiverRecord | None) -> bool:
    """Return whether a delivered entry was not applied because it was stale.

    By the receiver's table or, without one, by the receipt.
    """
    if not entry.delivered:
        return False
    if record is not None:
        return record.outcome is ReceiptOutcome.STALE
    return entry.proof is not None and entry.proof.outcome is ReceiptOutcome.STALE


def stale_finding(*, overtaken: bool) -> Finding:
    """Return the finding for a stale entry; `overtaken` if earlier requests explain it."""
    return Finding.OVERTAKEN if overtaken else Finding.STALE_THERE


def compare(entry: SentEntry, record: ReceiverRecord | None, *, overtaken: bool = False) -> Finding:
    """Return the finding about an entry of this side; `overtaken` as in `stale_finding`.

    The gravest comes first: a lost key, another body, a contradicting receipt, a decision that was
    not applied.
    """
    if not entry.delivered:
        return (
            Finding.NEITHER if record is None else _body_or(Finding.UNDELIVERED_HERE, entry, record)
        )
    if entry.key is None:
        return Finding.PRUNED_HERE
    if record is None:
        return Finding.MISSING_THERE
    finding = _receipt_finding(entry.proof, record)
    if called_stale(entry, record) and finding in (Finding.AGREED, Finding.NO_RECEIPT):
        finding = stale_finding(overtaken=overtaken)
    return _body_or(finding, entry, record)


def _body_or(otherwise: Finding, entry: SentEntry, record: ReceiverRecord) -> Finding:
    ours, theirs = entry.body_sha256, record.body_sha256
    differ = ours is not None and theirs is not None and ours != theirs
    return Finding.OTHER_BODY if differ else otherwise


def _receipt_finding(proof: Proof | None, record: ReceiverRecord) -> Finding:
    if proof is None:
        return Finding.NO_RECEIPT
    # A duplicate of an applied entry; the receiver's table keeps the first outcome.
    outcome = ReceiptOutcome.APPLIED if proof.outcome is ReceiptOutcome.DUPLICATE else proof.outcome
    if outcome is not record.outcome:
        return Finding.OTHER_OUTCOME
    return Finding.AGREED if proof.applied_at == record.applied_at else Finding.OTHER_TIME
