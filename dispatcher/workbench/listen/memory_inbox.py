"""The inbox of `holdfast listen`: that of `dispatcher.receiver`, in memory. Pure.

A key is applied once; the same key with another body is a conflict; a sequence that is not above
its subject's newest is stale. What it remembers, some 300 bytes a key, ends with the process.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from dispatcher.receiver.message.receipt import Receipt
from dispatcher.receiver.message.verify import Delivery
from sink.contract.wire import ReceiptOutcome


@dataclass(frozen=True, slots=True)
class _Known:
    body_sha256: bytes
    outcome: ReceiptOutcome
    received_at: datetime


class MemoryInbox:
    """Not safe for several threads at once: its owner takes a lock."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._newest: dict[str, int] = {}

    def receive(self, delivery: Delivery, subject: str | None, now: datetime) -> Receipt:
        """Return what becomes of a delivery. Without a subject no sequence is compared."""
        key, body_sha256 = delivery.key, hashlib.sha256(delivery.raw).digest()
        known = self._known.get(key)
        if known is None:
            outcome = self._fence(subject, delivery.body.sequence)
            self._known[key] = _Known(body_sha256, outcome, now)
            return Receipt(key, outcome, now)
        if known.body_sha256 != body_sha256:
            return Receipt(key, ReceiptOutcome.CONFLICT)
        stale = known.outcome is ReceiptOutcome.STALE
        again = ReceiptOutcome.STALE if stale else ReceiptOutcome.DUPLICATE
        return Receipt(key, again, known.received_at, replayed=True)

    def _fence(self, subject: str | None, sequence: int) -> ReceiptOutcome:
        if subject is None:
            return ReceiptOutcome.APPLIED
        if sequence <= self._newest.get(subject, 0):
            return ReceiptOutcome.STALE
        self._newest[subject] = sequence
        return ReceiptOutcome.APPLIED
