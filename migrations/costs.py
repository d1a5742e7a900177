"""The estimated time of a statement of an upgrade: measured unit costs by sizes of tables."""

from dataclasses import dataclass
from enum import StrEnum

ROW_BYTES = 100
"""What a row counts for in a table that was never analyzed, so that its rows are not known."""


class Kind(StrEnum):
    """What a statement does to a table that was there before; else it changes the catalogue."""

    READ = "read"
    """It reads all rows, as to validate a constraint."""
    INDEX = "build_index"
    CHANGE = "change_rows"
    """It inserts, updates or deletes rows by what it reads: counted as if it changed all."""
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a table."""

    rows: int
    """As of the last ANALYZE or VACUUM; negative before."""
    bytes: int
    """Without indexes."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Milliseconds; an MB is a million bytes."""

    catalogue_ms: float
    """A statement that changes the catalogue alone."""
    read_ms_per_mb: float
    index_ms_per_million_rows: float
    change_ms_per_mb: float
    """With the indexes of the table, as for a rewrite."""
    rewrite_ms_per_mb: float
    measured: str
    command: str = "python -m tests.benchmarks.upgrade"

    def seconds(self, kind: Kind, size: Size, indexes: int = 1) -> float:
        """Return the estimate for a table of this size; `indexes` are those that are built."""
        rows = size.rows if size.rows >= 0 else size.bytes / ROW_BYTES
        match kind:
            case Kind.READ:
                took = self.read_ms_per_mb * size.bytes / 1e6
            case Kind.INDEX:
                took = self.index_ms_per_million_rows * rows / 1e6 * indexes
            case Kind.CHANGE:
                took = self.change_ms_per_mb * size.total_bytes / 1e6
            case Kind.REWRITE:
                took = self.rewrite_ms_per_mb * size.total_bytes / 1e6
        return took / 1000


MEASURED = UnitCosts(
    catalogue_ms=0.74,
    read_ms_per_mb=0.40,
    index_ms_per_million_rows=446.0,
    change_ms_per_mb=22.2,
    rewrite_ms_per_mb=7.64,
    measured="measured on 2 cores, Postgres 18.4, tables in memory",
)
"""Medians of the benchmark, which can be repeated on any server."""
