"""The rows of one batch as the transaction meets them, wherever they are."""

from dataclasses import dataclass
from typing import Protocol

import psycopg


@dataclass(frozen=True, slots=True)
class Staged:
    """What came into the session's staging table; with `duplicates`, all rows of the batch."""

    entries: int
    duplicates: int
    """Rows that repeat another row's key with the same content."""

    quarantined: int


class Content(Protocol):
    """The rows of one batch. Its methods run inside the transaction, again in each attempt."""

    @property
    def row_count(self) -> int:
        """`entries + duplicates + quarantined` of what `stage` returns."""

    @property
    def digest(self) -> bytes:
        """As `sink.digest.digest` of the rows, wherever they are."""

    def stage(self, connection: psycopg.Connection) -> Staged:
        """Fill `pg_temp.holdfast_staged` with entries of different keys, numbered in their order.

        Failpoint S4 is in its middle.
        """

    def quarantine(self, connection: psycopg.Connection, batch_no: int, at: str) -> None:
        """Write the rows that were set aside; `at` is the batch's moment as RFC 3339."""
