"""A decision made anew: its key, its place in the ledger, and the entry itself. Pure."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sink.contract.canonical import rfc3339
from sink.contract.key import Key

NAMESPACE = "reissue/v1"
"""What the keys of all reissued decisions begin with."""

ORDINALS_MAX = 1000


def never_sent_again(new_key: str) -> str:
    """Say of an entry that was reissued as `new_key` why it is not sent under its own."""
    return (
        f"never arrived, and was reissued as {new_key}: sent as well, the action would happen twice"
    )


def parts_of(key: Key, ordinal: int) -> list[str]:
    """Return the parts of the key under which an entry is reissued for the n-th time, from 1.

    They follow from the old key alone, so doing it again after a crash meets the same key.
    """
    return [NAMESPACE, key.text, str(ordinal)]


def parts_behind(key: Key, new_key: UUID) -> list[str]:
    """Return the parts of `new_key`, one of those under which `key` is reissued."""
    for ordinal in range(1, ORDINALS_MAX + 1):
        parts = parts_of(key, ordinal)
        if Key.of(parts).digest == new_key:
            return parts
    raise ValueError(f"hf_{new_key.hex} is no key of a reissue of {key.text}")


def batch_id_of(new_key: UUID) -> int:
    """Return the number of the batch that a reissued decision is written in: 48 bits of its key."""
    return new_key.int >> 80


def entry_text(entry: Mapping[str, Any], parts: list[str]) -> str:
    """Return the decision with a new key, as the sink reads single entries: JSON.

    `entry` has subject, type, occurred_at, priority, traceparent and the body's text.
    """
    row = {
        "subject": entry["subject"],
        "type": entry["type"],
        "key": parts,
        "occurred_at": rfc3339(entry["occurred_at"]),
        "priority": entry["priority"],
        "traceparent": entry["traceparent"],
        "data": json.loads(entry["body"])["data"],
    }
    return json.dumps(row, ensure_ascii=False)
