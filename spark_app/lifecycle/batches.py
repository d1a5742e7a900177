"""The gate between Spark and the sink: which batch runs, its outcome, and when to stop."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Condition
from typing import Any, Protocol
from uuid import UUID

from pyspark.sql import DataFrame

from holdfast.sink.contract.spans import failing_span
from holdfast.sink.rows.outcome import Replayed, Written
from holdfast.sink.transaction.continuation import Repeated
from holdfast.spark_app.reporting.batch_counts import BatchCounter, FinishedBatch


def batch(batch_id: int) -> AbstractContextManager[Any]:
    """Run the block in the span of a batch. Errors of the block propagate."""
    attributes = {"holdfast.batch_id": batch_id}
    return failing_span("holdfast.job", "holdfast.batch", attributes=attributes)


class Sink(Protocol):
    """The sink: called when the run begins, and for each batch."""

    last: Written | Replayed | None

    def start(self, query_id: UUID, run_id: UUID, *, repeated: Repeated | None = None) -> None: ...

    def __call__(self, df: DataFrame, batch_id: int) -> None: ...


class Stopped(Exception):
    """Raised into Spark instead of a batch once the gate is closed."""


class Batches:
    """The function for foreachBatch; runs on Spark's thread, and the main thread reads it.

    Spark may reach the first batch before the main thread knows the run: it waits for `begin`.
    """

    def __init__(
        self,
        sink: Sink,
        account: Callable[[Written | Replayed], FinishedBatch] | None = None,
    ) -> None:
        """`account` returns the counts of the batch that the sink has just written."""
        self._sink = sink
        self._account = account or BatchCounter().close
        self._require: Callable[[int], None] = _nothing
        self._changed = Condition()
        self._begun = False
        self._open = True
        self._running = False
        self._finished = -1
        self._done: dict[int, FinishedBatch] = {}
        self.wrote = False
        """Whether a batch was written, and not only replayed."""
        self.failure: BaseException | None = None
        """The error that ended the query, before Spark wrapped it."""

    def begin(
        self,
        query_id: UUID,
        run_id: UUID,
        require: Callable[[int], None] | None = None,
        repeated: Repeated | None = None,
        *,
        take: bool = True,
    ) -> None:
        """Begin the run and open the gate; an error of the sink is raised and closes it.

        Without `take`, the first batch takes the stream.

        `require` is called with the id of each batch before the sink, and raises for a batch that
        must not be written. `repeated` is what the run announces to the sink.
        """
        self._require = require or _nothing
        try:
            if take:
                self._sink.start(query_id, run_id, repeated=repeated)
        except BaseException as error:
            self.failure = error
            self.close()
            raise
        with self._changed:
            self._begun = True
            self._changed.notify_all()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        with self._pass(batch_id), batch(batch_id):
            try:
                self._require(batch_id)
                self._sink(df, batch_id)
            except BaseException as error:
                self.failure = error
                raise
            outcome = self._sink.last
            if outcome is not None:
                self.wrote |= isinstance(outcome, Written)
                self._done[batch_id] = self._account(outcome)

    @contextmanager
    def _pass(self, batch_id: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._begun or not self._open)
            if not self._open:
                raise Stopped
            self._running = True
        try:
            yield
        finally:
            with self._changed:
                self._running = False
                self._finished = batch_id
                self._changed.notify_all()

    def close(self) -> int:
        """Close the gate and wait for the running batch; return the id of the last batch, or -1."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running)
            return self._finished

    @property
    def closed(self) -> bool:
        return not self._open

    def take(self, batch_id: int) -> FinishedBatch | None:
        """Return and remove the outcome of a batch."""
        return self._done.pop(batch_id, None)


def _nothing(batch_id: int) -> None:
    """Accept every batch."""
