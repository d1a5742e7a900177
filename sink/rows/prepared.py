"""A batch that is ready for the transaction: tables in the transaction's own columns."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from holdfast.sink.contract.states import QuarantineReason

ENTRIES = pa.schema(
    {
        "subject": pa.large_string(),
        "type": pa.string(),
        "key_text": pa.large_string(),
        "key": pa.string(),
        "occurred_at": pa.timestamp("us", "UTC"),
        "priority": pa.int16(),
        "traceparent": pa.string(),
        "head": pa.large_string(),
        "tail": pa.large_string(),
    }
)
"""An entry without its sequence, which only the transaction knows. `key_text` is the canonical JSON
of the key's parts; `key` is 32 hex digits; the body is `head`, the sequence, `tail`.
"""

ARRIVED = pa.schema(
    {
        "subject": pa.large_string(),
        "type": pa.string(),
        "key": pa.string(),
        "content": pa.string(),
        "occurred_at": pa.timestamp("us", "UTC"),
    }
)
"""The columns by which entries are numbered; `content` is `hashes.contents`, 32 hex digits."""

QUARANTINED = pa.schema(
    {
        "reason": pa.string(),
        "detail": pa.string(),
        "row": pa.large_string(),
        "rule": pa.string(),
    }
)
"""A quarantined row: a `QuarantineReason`, one line for a person, the row as JSON text, and the
name of the rule that rejected it, else null."""


class QuarantinedRow(NamedTuple):
    """A quarantined row."""

    reason: QuarantineReason
    detail: str
    row: str
    rule: str | None = None


def rejected_row(rule: str, detail: str, row: str) -> QuarantinedRow:
    """Quarantine a row that a rule of the job rejects."""
    detail = detail or f"rule {rule} of the job rejected it"
    return QuarantinedRow(QuarantineReason.REJECTED, detail, row, rule)


def quarantine_table(rows: Sequence[QuarantinedRow]) -> pa.Table:
    """Return QUARANTINED."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(QUARANTINED)
    return pa.table([list(column) for column in columns], schema=QUARANTINED)


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch as the transaction reads it.

    `row_count` is `entries.num_rows + duplicate_count + quarantined.num_rows`.
    """

    entries: pa.Table
    """ENTRIES in the order of their numbers (`holdfast.sink.rows.batch`). Keys are unique."""

    quarantined: pa.Table
    """QUARANTINED, in the order of the input."""

    duplicate_count: int
    """Rows that repeat another row's key with the same content."""

    row_count: int

    content: Future[pa.ChunkedArray]
    """The column `content` of ARRIVED, in the order of `entries`; hashed while they are sorted."""

    hashing: Future[bytes]
    """The digest; the transaction waits for it as late as possible."""

    @property
    def arrived(self) -> pa.Table:
        """ARRIVED, in the order of `entries`."""
        entries = self.entries.append_column("content", self.content.result())
        return entries.select(ARRIVED.names)

    @property
    def digest(self) -> bytes:
        """As `holdfast.sink.rows.digest.digest` of the tables."""
        return self.hashing.result()
