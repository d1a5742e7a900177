"""The result of a comparison with a receiver, as JSON."""

from typing import Any

from holdfast.dispatcher.operators.receipts.rules import (
    MEANING,
    NO_DIFFERENCE,
    Difference,
    Finding,
    Tally,
)
from holdfast.dispatcher.operators.receipts.store import ComparedRange
from holdfast.sink.contract.wire import ReceiptOutcome

PROOFS = (ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE)
OF_RECEIPTS_ALONE = (Finding.STALE_THERE, Finding.OVERTAKEN, Finding.NO_RECEIPT)
"""The findings that are possible without a query to the receiver."""


def as_rows(endpoint: str, range_: ComparedRange, side: str | None, tally: Tally) -> dict[str, Any]:
    """Return the result as JSON can hold it."""
    return {
        "endpoint": endpoint,
        "since": range_.since,
        "until": range_.until,
        "subject": range_.subject,
        "compared_with": side,
        "delivered": tally.delivered,
        "undelivered": tally.undelivered,
        "receipts": {each.value: tally.receipts[each] for each in PROOFS}
        | {"none": tally.delivered - tally.receipts.total()},
        "findings": {each.value: tally.findings[each] for each in findings_of(side)},
        "needs_a_person": tally.needs_a_person,
        "meaning": {each.value: MEANING[each] for each in _findings(tally)},
        "differences": [_row(each) for each in tally.differences],
        "differences_kept_of_each": tally.limit,
    }


def findings_of(side: str | None) -> tuple[Finding, ...]:
    """Return the possible findings by the other side: `database`, `inquiry`, or None."""
    return tuple(Finding) if side else OF_RECEIPTS_ALONE


def _findings(tally: Tally) -> list[Finding]:
    return [each for each in Finding if tally.findings[each] and each not in NO_DIFFERENCE]


def _row(difference: Difference) -> dict[str, Any]:
    entry, record = difference.entry, difference.record
    return {
        "finding": difference.finding.value,
        "key": difference.key,
        "subject": subject_of(difference),
        "sequence": sequence_of(difference),
        "here": entry
        and {
            "delivered": entry.delivered,
            "last_outcome": entry.last,
            "receipt": entry.proof
            and {"outcome": entry.proof.outcome.value, "applied_at": entry.proof.applied_at},
            "body_sha256": entry.body_sha256.hex() if entry.body_sha256 else None,
        },
        "there": record
        and {
            "outcome": record.outcome.value,
            "applied_at": record.applied_at,
            "body_sha256": record.body_sha256.hex() if record.body_sha256 else None,
        },
    }


def subject_of(difference: Difference) -> str | None:
    """Return the subject, from a side that knows the key."""
    side = difference.entry or difference.record
    return side.subject if side else None


def sequence_of(difference: Difference) -> int | None:
    """Return the sequence, from a side that knows the key."""
    side = difference.entry or difference.record
    return side.sequence if side else None
