"""The rows of one batch as the transaction meets them, wherever they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import psycopg
import pyarrow as pa

from sink.rows.numbering import Numbered, Suppressed


@dataclass(frozen=True, slots=True)
class Arrived:
    """What came; with `duplicates` and `quarantined`, all rows of the batch."""

    entries: pa.Table
    """`prepared.ARRIVED`, in the order in which entries are numbered. Keys differ."""

    duplicates: int
    """Rows that repeat another row's key with the same content."""

    quarantined: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every row that a batch writes has in common."""

    batch_no: int
    written_at: datetime
    traceparent: str | None = None
    """Of an entry that has none of its own."""


class Content(Protocol):
    """The rows of one batch. Its methods run inside the transaction, again in each attempt."""

    @property
    def row_count(self) -> int:
        """`entries + duplicates + quarantined` of what arrives."""

    @property
    def digest(self) -> bytes:
        """As `sink.rows.digest.digest` of the rows, wherever they are."""

    def arrive(self, connection: psycopg.Connection) -> Arrived:
        """Return what decides; nothing of the outbox is locked or changed yet."""

    def rows_at(self, connection: psycopg.Connection, positions: Sequence[int]) -> pa.Table:
        """Return some of the entries as `prepared.ENTRIES`, by their positions in what arrived."""

    def add_entries(self, connection: psycopg.Connection, numbered: Numbered, stamp: Stamp) -> None:
        """Write the numbered entries with their final bodies. Failpoint S4 is in its middle."""

    def add_suppressed(
        self, connection: psycopg.Connection, suppressed: Suppressed, stamp: Stamp
    ) -> None:
        """Keep what is recorded and not written."""

    def add_quarantined(self, connection: psycopg.Connection, stamp: Stamp) -> None:
        """Write the rows that were set aside."""
