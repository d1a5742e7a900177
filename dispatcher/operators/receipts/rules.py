"""What was sent, compared with what was applied: one entry on both sides at a time.

`Here` is what this outbox knows of an entry, `There` what its receiver knows of the same key.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from dispatcher.outbound.inquiry_answer import There
from dispatcher.shared.value import value
from sink.contract.wire import ReceiptOutcome

IN_FLIGHT = "in_flight"
"""What stands for the outcome of an entry that is being sent for the first time."""


class Finding(StrEnum):
    """What a comparison can say about one key; `MEANING` has the sentences."""

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
        "Delivered here, and the receiver does not know the key: it lost it, as after a restored"
        " backup, or forgot it. If it lost it, deliver it again: its key keeps it from acting"
        " twice."
    ),
    Finding.OTHER_BODY: (
        "The receiver has this key with another body. Somebody else signs with this secret, or one"
        " of the two databases was changed by hand: compare both bodies before anything is sent."
    ),
    Finding.OTHER_OUTCOME: (
        "The receipt does not say what the receiver's table says. One of them was changed since:"
        " the receipt is signed, so believe it, and find out what happened to the table."
    ),
    Finding.OTHER_TIME: (
        "The receipt names another time than the receiver's table: the key was dealt with twice, as"
        " after a restored backup and a repeat. Look whether the action happened twice."
    ),
    Finding.STALE_THERE: (
        "Delivered here, and refused there as stale: it was not applied. The receiver had dealt"
        " with the same or a higher sequence of the subject, and nothing that was sent from here"
        " explains that: another outbox sends there too, or the sequences of this one began again,"
        " as in a new or restored database. What follows is refused too, until the sequences are"
        " higher. Look what the receiver has for the subject, and correct it there."
    ),
    Finding.OVERTAKEN: (
        "Delivered here, and refused there as stale, as it has to be: a later decision of the"
        " subject was sent from here before, or this one had been applied already. So it is after a"
        " skip, a redelivery, or without order. Nothing needs to be done."
    ),
    Finding.UNDELIVERED_HERE: (
        "Dealt with there, and not known here: the answer was lost, or is under way. It is sent"
        " again and answered as it was then; only a dead letter waits for a person."
    ),
    Finding.NO_RECEIPT: (
        "Delivered here, without a receipt that proves it. Nothing needs to be done; a receiver"
        " that answers with receipts can be held to its word."
    ),
    Finding.ONLY_THERE: (
        "The receiver dealt with a key that this outbox never had: another outbox sends there too,"
        " or this one was restored from a backup. If neither is so, the secret is in other hands:"
        " rotate it."
    ),
    Finding.PRUNED_HERE: (
        "Delivered here, but the day of the entry was dropped and there is no receipt: nothing is"
        " left to compare."
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
"""What does not mend itself and is not explained by a receiver without receipts."""

NO_DIFFERENCE = frozenset({Finding.AGREED, Finding.NEITHER})


@value
class Proof:
    """What a proven receipt says. `applied_at` is the receiver's text, letter by letter."""

    outcome: ReceiptOutcome
    applied_at: str


@value
class Here:
    """An entry that was sent, or is being sent, to an endpoint.

    `key` is None where the entry's day was dropped and no receipt names it. `body_sha256` is None
    where the entry is gone or the body is not asked about. `last` is the outcome of the attempt
    that counts: the delivered one where there is one.
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
    """A key on which the two sides do not agree, as each of them has it."""

    finding: Finding
    here: Here | None
    there: There | None

    @property
    def key(self) -> str | None:
        """The key, where one of the sides can still name it."""
        return (self.there.key if self.there else None) or (self.here.key if self.here else None)


@dataclass(slots=True)
class Tally:
    """Counts of everything that was compared, and the first differences of each kind."""

    limit: int
    """How many differences of each kind are kept."""
    delivered: int = 0
    undelivered: int = 0
    findings: Counter[Finding] = field(default_factory=Counter)
    receipts: Counter[ReceiptOutcome] = field(default_factory=Counter)
    """Of what was delivered, by what the receipt says."""
    kept: dict[Finding, list[Difference]] = field(default_factory=dict)

    def sent(self, here: Here) -> None:
        """Count an entry of this side."""
        self.delivered += here.delivered
        self.undelivered += not here.delivered
        if here.delivered and here.proof is not None:
            self.receipts[here.proof.outcome] += 1

    def found(self, finding: Finding, here: Here | None, there: There | None) -> None:
        """Count a finding, and keep it if it is one of the first differences of its kind."""
        self.findings[finding] += 1
        if finding not in NO_DIFFERENCE:
            kept = self.kept.setdefault(finding, [])
            if len(kept) < self.limit:
                kept.append(Difference(finding, here, there))

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
        """What was kept, kind by kind in the order of `Finding`."""
        return [each for finding in Finding for each in self.kept.get(finding, [])]


def called_stale(here: Here, there: There | None) -> bool:
    """Return whether a delivered entry was not applied because it was stale.

    The receiver's table says so or, where it is not asked, the receipt.
    """
    if not here.delivered:
        return False
    if there is not None:
        return there.outcome is ReceiptOutcome.STALE
    return here.proof is not None and here.proof.outcome is ReceiptOutcome.STALE


def stale_finding(*, overtaken: bool) -> Finding:
    """Return what is said of an entry that was stale.

    `overtaken` where what was sent from here before explains it.
    """
    return Finding.OVERTAKEN if overtaken else Finding.STALE_THERE


def compare(here: Here, there: There | None, *, overtaken: bool = False) -> Finding:
    """Return what the two sides say about an entry of this side.

    What weighs more comes first: a receiver that lost a key, then another body, then words, then a
    decision that was not applied; `overtaken` as in `stale_finding`.
    """
    if not here.delivered:
        return Finding.NEITHER if there is None else _body_or(Finding.UNDELIVERED_HERE, here, there)
    if here.key is None:
        return Finding.PRUNED_HERE
    if there is None:
        return Finding.MISSING_THERE
    found = _words(here.proof, there)
    if called_stale(here, there) and found in (Finding.AGREED, Finding.NO_RECEIPT):
        found = stale_finding(overtaken=overtaken)
    return _body_or(found, here, there)


def _body_or(otherwise: Finding, here: Here, there: There) -> Finding:
    ours, theirs = here.body_sha256, there.body_sha256
    differ = ours is not None and theirs is not None and ours != theirs
    return Finding.OTHER_BODY if differ else otherwise


def _words(proof: Proof | None, there: There) -> Finding:
    if proof is None:
        return Finding.NO_RECEIPT
    # A duplicate of what was applied; the receiver's table keeps what became of it first.
    said = ReceiptOutcome.APPLIED if proof.outcome is ReceiptOutcome.DUPLICATE else proof.outcome
    if said is not there.outcome:
        return Finding.OTHER_OUTCOME
    return Finding.AGREED if proof.applied_at == there.applied_at else Finding.OTHER_TIME
