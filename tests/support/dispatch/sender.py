"""An independent sender: bodies, keys and signatures, and the rows of decisions for a sink.

It shares no code with the signer or the verifier, so that both are checked against the wire format
and not against each other.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

KEY_BYTES = bytes(range(32))
OTHER_KEY_BYTES = bytes(range(100, 132))


def secret_text(key: bytes = KEY_BYTES) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def key_of(merchant: str, sequence: int) -> str:
    return "hf_" + hashlib.sha256(f"{merchant}/{sequence}".encode()).hexdigest()[:32]


def hold(merchant: str, action: str, /, **changes: Any) -> dict[str, Any]:
    """The `data` of a payout hold."""
    return {
        "merchant_id": merchant,
        "action": action,
        "window_start": "2026-11-02T12:00:00Z",
        "window_end": "2026-11-02T12:15:00Z",
        "revision": 1,
        "exposure_minor": 8_500_000 if action == "block" else 2_200_000,
        "limit_minor": 5_000_000,
        "release_level_minor": 5_000_000,
        "currency": "USD",
        "policy_version": "2026-11-01",
        **changes,
    }


def body(
    merchant: str = "m_482", action: str = "block", sequence: int = 1, **members: Any
) -> bytes:
    """The body of one delivery; `members` replace its members, `...` removes one."""
    content = {
        "type": f"payout_hold.{action}",
        "timestamp": "2026-11-02T12:15:00Z",
        "sequence": sequence,
        "key": key_of(merchant, sequence),
        "data": hold(merchant, action),
        **members,
    }
    kept = {name: value for name, value in content.items() if value is not ...}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False).encode()


def sign(id_: str, timestamp: object, content: bytes, key: bytes = KEY_BYTES) -> str:
    text = f"{id_}.{timestamp}.".encode() + content
    return "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


def headers(
    content: bytes, *, id_: str | None = None, timestamp: object = None, key: bytes = KEY_BYTES
) -> dict[str, str]:
    """The headers of one attempt, signed now unless `timestamp` says otherwise."""
    known = id_ if id_ is not None else json.loads(content)["key"]
    moment = timestamp if timestamp is not None else int(time.time())
    return {
        "content-type": "application/json",
        "webhook-id": known,
        "webhook-timestamp": str(moment),
        "webhook-signature": sign(known, moment, content, key),
        "idempotency-key": f'"{known}"',
    }


def receipt(answer: dict[str, Any], key: bytes = KEY_BYTES) -> str:
    """The receipt that an answer of the receiver must carry."""
    text = f"receipt.{answer['key']}.{answer['outcome']}.{answer['applied_at']}"
    return "v1," + base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()


@dataclass(frozen=True)
class Sent:
    """One request, ready to send again and again."""

    content: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, *arguments: Any, **members: Any) -> "Sent":
        content = body(*arguments, **members)
        return cls(content, headers(content))


BLOCK = "payout_hold.block"
RELEASE = "payout_hold.release"
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "subject": "m_9",
    "type": BLOCK,
    "key": ["payout-hold/v1", "m_9", "2026-11-02T12:15:00Z", "block", "1"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"merchant_id": "m_9", "exposure_minor": 1},
}
"""A row that may be kept in the quarantine, as JSON holds it."""
WINDOW = timedelta(minutes=15)

SCHEMA = pa.schema(
    {
        "subject": pa.string(),
        "type": pa.string(),
        "key": pa.list_(pa.string()),
        "occurred_at": pa.timestamp("us", "UTC"),
        "data": pa.struct({"merchant_id": pa.string(), "exposure_minor": pa.int64()}),
    }
)

REFUSED = pa.schema({"reason": pa.string(), "detail": pa.string(), "row": pa.string()})


def decision(
    subject: str = "m_482",
    window: int = 1,
    type_: str = BLOCK,
    minor: int = 8_500_000,
    **other: Any,
) -> dict[str, Any]:
    """One row: the decision of `subject` at the end of the n-th window after noon."""
    end = NOON + window * WINDOW
    return {
        "subject": subject,
        "type": type_,
        "key": ["payout-hold/v1", subject, end.isoformat(), type_, "1"],
        "occurred_at": end,
        "data": {"merchant_id": subject, "exposure_minor": minor},
    } | other


def table(*rows: dict[str, Any]) -> pa.Table:
    """The rows as `BatchInput.entries`."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def alternating(subject: str, windows: Sequence[int]) -> list[dict[str, Any]]:
    """A block, a release, a block, ... one a window, so that nothing is suppressed."""
    return [decision(subject, window, (RELEASE, BLOCK)[window % 2]) for window in windows]
