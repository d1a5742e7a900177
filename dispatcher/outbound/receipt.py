"""The keys in an answer: its receipt, if genuine, and a key that is not the request's.

An answer is JSON `{"key","outcome","applied_at","receipt"}`; the receipt is an HMAC over the other
three, with the secret that both sides share.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from holdfast.receiver.message.receipt import receipt_is_genuine
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.wire import ReceiptOutcome

_FIELD_CHARACTERS_MAX = 128

_KEY = re.compile(r"hf_[0-9a-f]{32}")
# Also inside a JSON string, where quotes are escaped.
_MEMBER = re.compile(
    rb'"key\\*"\s*:\s*\\*"\s*(hf_[0-9a-f]{32})(?![0-9a-z_])', re.IGNORECASE | re.ASCII
)

_STALE = '"outcome":"stale"'
"""As `_encoded` writes it; `ix_attempt_stale` matches the same text."""

# Made once: `json.dumps` with separators makes an encoder each time.
_encoded = json.JSONEncoder(separators=(",", ":")).encode


def proven_receipt(body: bytes, key: str, secrets: Sequence[Secret]) -> str | None:
    """Return the receipt of `body` as JSON text, or None without a genuine one for `key`."""
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
    """Return whether a receipt of `proven_receipt` has the outcome `stale`."""
    return receipt is not None and _STALE in receipt


def other_key(body: bytes, key: str) -> str | None:
    """Return the key in an answer where it is not `key`, or None.

    Only the member `key` of the answer or of its `receipt` counts, and only in Holdfast's form: a
    receiver may have keys of its own. Case and surrounding blanks are ignored. Keys elsewhere in
    the JSON do not count: a receiver may list earlier ones. In invalid JSON, which may be truncated
    or damaged, the position of a member `key` is unknown: all of them count, and the answer is
    about another key if none of them is `key`.
    """
    bare = body.replace(b"\0", b"")  # as in UTF-16
    if b"hf_" not in bare.lower() and b"\\" not in bare:
        return None
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        keys = [member.decode().lower() for member in _MEMBER.findall(bare)]
        return None if key in keys else next(iter(keys), None)
    receipt = answer.get("receipt") if isinstance(answer, dict) else None
    for each in (answer, receipt):
        member_key = each.get("key") if isinstance(each, dict) else None
        if isinstance(member_key, str):
            plain = member_key.strip().lower()
            if plain != key and _KEY.fullmatch(plain):
                return plain
    return None
