"""A reissued decision: its key, its batch in the ledger, and its entry. Pure."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.key import Key

NAMESPACE = "reissue/v1"
"""The first part of the keys of all reissued decisions."""

ORDINALS_MAX = 1000


def never_sent_again(new_key: str) -> str:
    """Return why an entry that was reissued as `new_key` is not sent under its own key."""
    return f"never arrived, and was reissued as {new_key}: to send both would do the action twice"


def parts_of(key: Key, ordinal: int) -> list[str]:
    """Return the parts of the key of an entry's Nth reissue; `ordinal` counts from 1.

    They derive from the old key alone, so a repeat after a crash gets the same key.
    """
    return [NAMESPACE, key.text, str(ordinal)]


def parts_behind(key: Key, new_key: UUID) -> list[str]:
    """Return the parts of `new_key`, a key of a reissue of `key`; raises `ValueError`."""
    for ordinal in range(1, ORDINALS_MAX + 1):
        parts = parts_of(key, ordinal)
        if Key.of(parts).digest == new_key:
            return parts
    raise ValueError(f"hf_{new_key.hex} is not a key of a reissue of {key.text}")


def batch_id_of(new_key: UUID) -> int:
    """Return the id of the batch of a reissued decision: 48 bits of its key."""
    return new_key.int >> 80


def entry_text(entry: Mapping[str, Any], parts: list[str]) -> str:
    """Return the decision with a new key as JSON text, the sink's form for single entries.

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
