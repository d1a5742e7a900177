"""The receipt in a receiver's answer: kept only when it proves itself.

An answer is JSON `{"key","outcome","applied_at","receipt"}`; the receipt is an HMAC over the other
three, by a secret that only the two sides know.
"""

import json
from collections.abc import Sequence
from typing import Any

from dispatcher.receiver.receipt import receipt_is_genuine
from dispatcher.receiver.secret import Secret
from sink.contract.wire import ReceiptOutcome

_FIELD_CHARACTERS_MAX = 128

# Made once: `json.dumps` with separators makes an encoder each time.
_encoded = json.JSONEncoder(separators=(",", ":")).encode


def proven_receipt(body: bytes, key: str, secrets: Sequence[Secret]) -> str | None:
    """Return the receipt of `body` as JSON text, or None without a genuine one for this `key`."""
    if b'"receipt"' not in body:  # most receivers send none
        return None
    try:
        answer: Any = json.loads(body.decode())
        fields = {name: answer[name] for name in ("key", "outcome", "applied_at", "receipt")}
        outcome = ReceiptOutcome(fields["outcome"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    for value in fields.values():
        if not isinstance(value, str) or len(value) > _FIELD_CHARACTERS_MAX or not value.isascii():
            return None
    applied_at, receipt = fields["applied_at"], fields["receipt"]
    if fields["key"] != key or not any(
        receipt_is_genuine(secret, key, outcome, applied_at, receipt) for secret in secrets
    ):
        return None
    return _encoded(fields)
