"""The measured unit costs, and what they were measured on.

`docs/spark/recovery-time.json` has the same values and the measurements behind them; a test
compares. To measure again: docs/spark/recovery-time.md.
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
    """More of the first batch: files and changelogs are loaded, and the groups read."""
    replay_s_per_million_events: float
    """More of the first batch: it is cold, so an event costs more than in a later one."""
    batch_s: float
    """Of a later batch, whatever is in it. It did not grow with the ids in the state, up to 4 M."""
    batch_s_per_million_events: float
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


COMMAND: Final = "python -m tests.benchmarks.operator --only sweep,state,restore"
"""Its part f ran once more after that: `--only f --docs`."""

DATE: Final = "2026-11-25"
GROUPS: Final = 32
"""Key groups of the measured job."""

MACHINE: Final = (
    f"2 cores, 2 partitions, {GROUPS} key groups, a local file system, ids of 20 characters"
)

MEASURED: Final = Units(
    start_s=18.2,
    first_batch_s=19.8,
    restore_s_per_million_ids=0.907,
    replay_s_per_million_events=24.9,
    batch_s=1.51,
    batch_s_per_million_events=9.21,
    state_bytes_per_id=21.1,
    state_bytes_per_merchant=29.1,
    changelog_bytes_per_event=26.0,
    changelog_bytes_per_merchant=11.6,
    log_bytes_per_batch=1_870,
    java_bytes=1_000_000_000,
    java_bytes_per_million_ids=184_000_000,
    python_bytes=784_000_000,
    python_bytes_per_million_ids=39_700_000,
)


@dataclass(frozen=True, slots=True)
class Range:
    """The largest loads that were measured."""

    ids: int
    """Event ids in the state."""
    merchants: int
    events_per_batch: int
    interval_s: int


RANGE: Final = Range(ids=4_000_000, merchants=200_000, events_per_batch=480_000, interval_s=120)
"""Rounded; beyond it every figure is a straight line drawn on."""
