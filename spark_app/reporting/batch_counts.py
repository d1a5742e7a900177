"""Counts of a batch that the sink does not have, taken while its blobs are unpacked."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.states import LateReason
from holdfast.sink.rows.batch import BatchInput
from holdfast.sink.rows.outcome import Replayed, Written
from holdfast.spark_app.operator import output
from holdfast.spark_app.operator.blobs import Kind

LATE_REASONS = tuple(reason.value for reason in LateReason)
"""Why an event may not be applied."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Numbers of rows of one batch."""

    windows: int = 0
    """Emitted windows."""
    late: Counter[str] = field(default_factory=Counter)
    """Events that were not applied, by reason."""
    quarantined: Counter[str] = field(default_factory=Counter)
    """Rows that were refused before the sink, by reason."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that the sink has, written or replayed."""

    outcome: Written | Replayed
    counts: BatchCounts


class BatchCounter:
    """The sink's `select` for the job, which counts what it sees.

    `select` and `close` run on Spark's thread, one batch after another.
    """

    def __init__(self, on_done: Callable[[FinishedBatch], None] = lambda _: None) -> None:
        self._on_done = on_done
        self._open = BatchCounts()
        self.finished = 0
        """Number of batches that the sink has written or replayed."""
        self.on_read: Callable[[], None] = _nothing
        """Called once a batch is read and nothing of it is written; an error ends the batch."""

    def select(self, blobs: pa.Table) -> BatchInput:
        """Return what the sink writes of the operator's blobs."""
        self.on_read()
        batch = output.select(blobs)
        late = _by_reason(batch.companions[Kind.LATE.value])
        windows = batch.companions[Kind.WINDOWS.value].num_rows
        self._open = BatchCounts(windows, late, _by_reason(batch.refused))
        return batch

    def close(self, outcome: Written | Replayed) -> FinishedBatch:
        """Return the outcome and counts of the batch that was selected last, after `on_done`."""
        done, self._open = FinishedBatch(outcome, self._open), BatchCounts()
        self.finished += 1
        self._on_done(done)
        return done


def _nothing() -> None:
    """Accept every batch."""


def _by_reason(rows: pa.Table | None) -> Counter[str]:
    if rows is None or not rows.num_rows:
        return Counter()
    return Counter(
        {
            found["values"].as_py(): found["counts"].as_py()
            for found in pc.value_counts(rows["reason"])
        }
    )
