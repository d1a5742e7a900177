"""What an answer says about keys: the receipt, kept only when it proves itself, and another's key.

An answer is JSON `{"key","outcome","applied_at","receipt"}`; the receipt is an HMAC over the other
three, by a secret that only the two sides know.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from dispatcher.receiver.receipt import receipt_is_genuine
from dispatcher.receiver.secret import Secret
from sink.contract.wire import ReceiptOutcome

_FIELD_CHARACTERS_MAX = 128

_KEY = re.compile(r"hf_[0-9a-f]{32}")

_STALE = '"outcome":"stale"'
"""As `_encoded` writes it; `ix_attempt_stale` looks for the same."""

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


def says_stale(receipt: str | None) -> bool:
    """Return whether a receipt, as `proven_receipt` returns it, says that nothing was applied."""
    return receipt is not None and _STALE in receipt


def other_key(body: bytes, key: str) -> str | None:
    """Return the key that an answer names instead of `key`, or None.

    A key stands in the member `key` of the answer or of its `receipt`, and has the form of ours:
    what a receiver calls a key of its own says nothing.
    """
    if b'"key"' not in body:
        return None
    try:
        answer: Any = json.loads(body.decode())
    except (ValueError, RecursionError):
        return None
    receipt = answer.get("receipt") if isinstance(answer, dict) else None
    for each in (answer, receipt):
        named = each.get("key") if isinstance(each, dict) else None
        if isinstance(named, str) and named != key and _KEY.fullmatch(named):
            return named
    return None
