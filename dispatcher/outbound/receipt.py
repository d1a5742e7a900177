"""What an answer says about keys: the receipt, kept only when it proves itself, and another's key.

An answer is JSON `{"key","outcome","applied_at","receipt"}`; the receipt is an HMAC over the other
three, by a secret that only the two sides know.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from dispatcher.receiver.message.receipt import receipt_is_genuine
from dispatcher.receiver.message.secret import Secret
from sink.contract.wire import ReceiptOutcome

_FIELD_CHARACTERS_MAX = 128

_KEY = re.compile(r"hf_[0-9a-f]{32}")
# Also inside of a string of JSON, where quotes stand behind backslashes.
_MEMBER = re.compile(
    rb'"key\\*"\s*:\s*\\*"\s*(hf_[0-9a-f]{32})(?![0-9a-z_])', re.IGNORECASE | re.ASCII
)

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
    what a receiver calls a key of its own says nothing. Case and blanks around it say nothing
    either. Keys elsewhere in JSON, in a list or deeper, do not count: a receiver may tell of those
    that it had before. In what is no JSON, as it is cut or damaged, nobody can tell where a member
    `key` stands: there each of them counts, and none of them may be `key`.
    """
    bare = body.replace(b"\0", b"")  # as in UTF-16
    if b"hf_" not in bare.lower() and b"\\" not in bare:
        return None
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        named = [found.decode().lower() for found in _MEMBER.findall(bare)]
        return None if key in named else next(iter(named), None)
    receipt = answer.get("receipt") if isinstance(answer, dict) else None
    for each in (answer, receipt):
        named_here = each.get("key") if isinstance(each, dict) else None
        if isinstance(named_here, str):
            plain = named_here.strip().lower()
            if plain != key and _KEY.fullmatch(plain):
                return plain
    return None
