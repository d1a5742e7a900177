"""The answer to a delivery, and the signed receipt inside it.

The receipt binds key, outcome and time with the secret that verified the delivery, so the sender
can keep it as proof of what the receiver said.
"""

import base64
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dispatcher.receiver.secret import Secret
from sink.contract.canonical import rfc3339
from sink.contract.wire import CONTENT_TYPE, RECEIPT_STATUS, ReceiptOutcome

RETRY_AFTER_SECONDS = 1


@dataclass(slots=True)
class Receipt:
    """What became of one delivery.

    `applied_at` is when the key was first dealt with, by the database's clock; None for
    `in_progress` and `conflict`. `replayed` says that this very delivery was dealt with before.
    `result` belongs to the service: JSON that it sets while it applies, and finds again when the
    same delivery comes back.
    """

    key: str
    outcome: ReceiptOutcome
    applied_at: datetime | None = None
    replayed: bool = False
    result: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, independent of any framework."""

    status: int
    headers: dict[str, str]
    body: bytes


def answer(receipt: Receipt, secret: Secret) -> Answer:
    """Compose the answer: `{"key","outcome","applied_at","receipt"}`.

    `applied_at` and `receipt` are null for `in_progress` and `conflict`: there is nothing to prove.
    """
    applied_at = rfc3339(receipt.applied_at) if receipt.applied_at else None
    signed = sign_receipt(secret, receipt.key, receipt.outcome, applied_at) if applied_at else None
    content = {
        "key": receipt.key,
        "outcome": receipt.outcome.value,
        "applied_at": applied_at,
        "receipt": signed,
    }
    headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
    if receipt.replayed:
        headers["idempotency-replayed"] = "true"
    if receipt.outcome is ReceiptOutcome.IN_PROGRESS:
        headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    body = json.dumps(content, separators=(",", ":")).encode()
    return Answer(RECEIPT_STATUS[receipt.outcome], headers, body)


def sign_receipt(secret: Secret, key: str, outcome: ReceiptOutcome, applied_at: str) -> str:
    """Return `v1,` and base64 of HMAC-SHA256 over `receipt.{key}.{outcome}.{applied_at}`."""
    text = f"receipt.{key}.{outcome.value}.{applied_at}"
    return "v1," + base64.b64encode(hmac.digest(secret.key, text.encode(), "sha256")).decode()


def receipt_is_genuine(
    secret: Secret, key: str, outcome: ReceiptOutcome, applied_at: str, receipt: str
) -> bool:
    """Check a receipt in constant time."""
    expected = sign_receipt(secret, key, outcome, applied_at)
    return hmac.compare_digest(expected.encode(), receipt.encode(errors="replace"))
