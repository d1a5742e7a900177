"""The webhook body, composed once per entry.

`{"type","timestamp","sequence","key","data"}` in this order; `data` is canonical JSON. The sequence
is known only inside the sink's transaction, so a body is kept as the bytes before and after it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.sink.contract.canonical import canonical_json, rfc3339
from holdfast.sink.contract.key import Key

TYPE_PATTERN = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
"""An entry's type: words with dots between, of at most `TYPE_CHARACTERS_MAX` characters."""

TYPE_CHARACTERS_MAX = 128

TYPE_FORM = f"words of A-Z a-z 0-9 _ with dots between, at most {TYPE_CHARACTERS_MAX} characters"
"""The same, for messages."""

BODY_BYTES_MAX = 256 * 1024
"""Largest body an entry may have. Standard Webhooks recommends under 20 kB."""


_TYPE = re.compile(TYPE_PATTERN)


def is_type(text: str) -> bool:
    """Return whether `text` can be the type of an entry.

    >>> [is_type(text) for text in ("payout_hold.block", "payout_hold", "a..b", ".a", "a.", "")]
    [True, True, False, False, False, False]
    """
    return len(text) <= TYPE_CHARACTERS_MAX and _TYPE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A body without its sequence."""

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, type_: str, timestamp: datetime, key: Key, data: Mapping[str, Any]) -> "Envelope":
        """Compose the body; raises `NotCanonical` when a value has no canonical form."""
        head = b'{"type":%s,"timestamp":%s,"sequence":' % (
            canonical_json(type_),
            canonical_json(rfc3339(timestamp)),
        )
        tail = b',"key":%s,"data":%s}' % (canonical_json(key.text), canonical_json(dict(data)))
        return cls(head, tail)

    def body(self, sequence: int) -> bytes:
        """Return the exact bytes that are stored, signed and sent."""
        return b"%s%d%s" % (self.head, sequence, self.tail)

    @property
    def content(self) -> UUID:
        """128-bit hash of everything but the sequence: detects one key with two contents."""
        return UUID(bytes=hashlib.sha256(self.head + self.tail).digest()[:16])
