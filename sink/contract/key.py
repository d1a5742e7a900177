"""The business key: what makes two decisions the same decision.

A key is a list of strings, most significant first, such as
`["payout-hold/v1", "m_482", "2026-11-02T12:15:00Z", "block", "1"]`. It never holds a batch id, a
query id, a revision, an attempt or a wall clock, so a recomputed stream has the same keys.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast.sink.contract.canonical import NotCanonical, canonical_json

PARTS_MAX = 16
PART_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Key:
    """One business key, as UUID and as text."""

    digest: UUID
    """First 128 bits of the SHA-256 of the canonical parts: the unique key in the tables."""

    @property
    def text(self) -> str:
        """`hf_` and 32 hex digits: `webhook-id`, `Idempotency-Key` and the body's `key`."""
        return f"hf_{self.digest.hex}"

    @classmethod
    def of(cls, parts: Sequence[str]) -> "Key":
        """Derive the key of `parts`; raises `NotCanonical` for an empty or unclean part."""
        if not 1 <= len(parts) <= PARTS_MAX:
            raise NotCanonical(f"a key has 1 to {PARTS_MAX} parts, not {len(parts)}")
        for part in parts:
            if not isinstance(part, str) or not part:
                raise NotCanonical(f"key part {part!r} is not a non-empty string")
            if len(part.encode(errors="replace")) > PART_BYTES_MAX:
                raise NotCanonical(f"key part of more than {PART_BYTES_MAX} bytes")
        return cls(UUID(bytes=hashlib.sha256(canonical_json(list(parts))).digest()[:16]))

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Read the `hf_...` form; raises `NotCanonical` for anything else."""
        if len(text) != 35 or not text.startswith("hf_"):
            raise NotCanonical(f"{text!r} is not a key: expected hf_ and 32 hex digits")
        if any(c not in "0123456789abcdef" for c in text[3:]):
            raise NotCanonical(f"{text!r} is not a key: expected lower-case hex digits")
        return cls(UUID(hex=text[3:]))
