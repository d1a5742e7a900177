"""The answer to a delivery, and the signed receipt inside it.

The receipt signs key, outcome and time with the secret that verified the delivery, so the sender
can keep it as proof of the receiver's answer.
"""

import base64
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.receiver.errors import TakenBack
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.wire import CONTENT_TYPE, KEY_WINDOW, RECEIPT_STATUS, ReceiptOutcome

RETRY_AFTER_SECONDS = 1


@dataclass(slots=True)
class Receipt:
    """The outcome of one delivery.

    `applied_at` is the time at which the key was first handled, by the database's clock; None for
    `in_progress` and `conflict`. `replayed`: the same delivery was handled before. `result` belongs
    to the service: JSON that `store_result` keeps, and a repeat of the delivery gets back.
    """

    key: str
    outcome: ReceiptOutcome
    applied_at: datetime | None = None
    replayed: bool = False
    result: Any = field(default=None, repr=False)
    key_window: str | None = None
    """How long the inbox keeps keys, as the header's value; None: no header."""
    body_sha256: bytes | None = field(default=None, repr=False)
    """Hash of the first body; set only in receipts from `inquire`."""
    taken_back: bool = field(default=False, repr=False)
    """Its `Inbox.transaction` or an enclosing one failed: key and action were rolled back."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, independent of any framework."""

    status: int
    headers: dict[str, str]
    body: bytes


def answer(receipt: Receipt, secret: Secret) -> Answer:
    """Compose the answer: `{"key","outcome","applied_at","receipt"}`.

    `applied_at` and `receipt` are null for `in_progress` and `conflict`. Raises `TakenBack` if the
    delivery was rolled back.
    """
    return _answer(receipt, secret, {})


def answer_inquiry(found: Receipt, secret: Secret) -> Answer:
    """Compose the answer to an inquiry about a known key: as above, with `body_sha256` in hex.

    `found` is the result of the inbox's `inquire`; answer an unknown key with `unknown_key()`.
    Raises `ValueError` for another receipt.
    """
    if found.body_sha256 is None:
        raise ValueError("this receipt does not come from an inquiry")
    return _answer(found, secret, {"body_sha256": found.body_sha256.hex()})


def _answer(receipt: Receipt, secret: Secret, further: dict[str, str]) -> Answer:
    if receipt.taken_back:
        raise TakenBack(f"{receipt.key} was rolled back: its block or an enclosing one failed")
    applied_at = rfc3339(receipt.applied_at) if receipt.applied_at else None
    signed = sign_receipt(secret, receipt.key, receipt.outcome, applied_at) if applied_at else None
    content = {
        "key": receipt.key,
        "outcome": receipt.outcome.value,
        "applied_at": applied_at,
        "receipt": signed,
        **further,
    }
    headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
    if receipt.key_window is not None:
        headers[KEY_WINDOW] = receipt.key_window
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
    if not applied_at.isascii():
        return False  # not a time; a lone surrogate, which JSON allows, cannot be encoded
    expected = sign_receipt(secret, key, outcome, applied_at)
    return hmac.compare_digest(expected.encode(), receipt.encode(errors="replace"))
