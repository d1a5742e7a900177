"""The measured unit costs, and what they were measured on.

`docs/spark/recovery-time.json` has the same values and the measurements behind them; a test
compares. To measure again: `make bench-operator` with `--docs`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Units:
    """Seconds and bytes. `ids` are event ids in the state, `merchants` those with a window."""

    start_s: float
    """Of a process until its first batch begins: Python, JVM, Spark session, checks, query."""
    first_batch_s: float
    """Of the first batch of a process, without ids in the state and with few events."""
    restore_s_per_million_ids: float
    """More of the first batch: files and changelogs are loaded, and groups are read."""
    batch_s: float
    """Of a later batch, whatever is in it."""
    batch_s_per_million_events: float
    batch_s_per_million_ids: float
    """More of every batch with events: they are compared with the ids of their group."""
    state_bytes_per_id: float
    """In RocksDB's files, and so in a snapshot."""
    state_bytes_per_merchant: float
    changelog_bytes_per_event: float
    """An id is written once by its batch, and again when segments are merged."""
    changelog_bytes_per_merchant: float
    """In every batch: a group's open windows are written as a whole."""
    log_bytes_per_batch: float
    """Plan, commit and source log."""
    java_bytes: float
    java_bytes_per_million_ids: float
    python_bytes: float
    """Of all Python workers; two partitions."""
    python_bytes_per_million_ids: float


COMMAND: Final = "python -m tests.benchmarks.operator --only d,e,f,g --docs"
DATE: Final = "2026-11-25"
MACHINE: Final = "2 cores, 2 partitions, 32 key groups, a local file system, ids of 20 characters"

MEASURED: Final = Units(
    start_s=15.0,
    first_batch_s=10.0,
    restore_s_per_million_ids=6.0,
    batch_s=1.0,
    batch_s_per_million_events=10.0,
    batch_s_per_million_ids=0.5,
    state_bytes_per_id=22,
    state_bytes_per_merchant=30,
    changelog_bytes_per_event=25,
    changelog_bytes_per_merchant=9,
    log_bytes_per_batch=4_000,
    java_bytes=1.2e9,
    java_bytes_per_million_ids=110e6,
    python_bytes=0.8e9,
    python_bytes_per_million_ids=51e6,
)
