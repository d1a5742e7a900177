"""The rows of one batch as the transaction reads them: from the driver, or from a stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import psycopg
import pyarrow as pa

from holdfast.sink.rows.numbering import Numbered, Suppressed


@dataclass(frozen=True, slots=True)
class Arrived:
    """The entries that arrived; with `duplicates` and `quarantined`, all rows of the batch."""

    entries: pa.Table
    """`prepared.ARRIVED`, in the order in which entries are numbered. Keys are unique."""

    duplicates: int
    """Rows that repeat another row's key with the same content."""

    quarantined: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """The columns that all rows written by a batch share."""

    batch_no: int
    written_at: datetime
    traceparent: str | None = None
    """For entries without one."""


class Content(Protocol):
    """The rows of one batch. Its methods run inside the transaction, once in each attempt."""

    @property
    def row_count(self) -> int:
        """`entries + duplicates + quarantined` of what arrives."""

    @property
    def digest(self) -> bytes:
        """As `holdfast.sink.rows.digest.digest` of the rows."""

    def arrive(self, connection: psycopg.Connection) -> Arrived:
        """Return the columns by which entries are numbered; locks and changes nothing."""

    def rows_at(self, connection: psycopg.Connection, positions: Sequence[int]) -> pa.Table:
        """Return some entries as `prepared.ENTRIES`, by their positions among the arrived."""

    def add_entries(self, connection: psycopg.Connection, numbered: Numbered, stamp: Stamp) -> None:
        """Write the numbered entries with their final bodies. Failpoint S4 is in its middle."""

    def add_suppressed(
        self, connection: psycopg.Connection, suppressed: Suppressed, stamp: Stamp
    ) -> None:
        """Record the suppressed entries."""

    def add_quarantined(self, connection: psycopg.Connection, stamp: Stamp) -> None:
        """Write the quarantined rows."""
