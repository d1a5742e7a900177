"""`OutboxSink`: what `df.writeStream.foreachBatch(...)` calls for each micro-batch.

There is exactly one action on the DataFrame: `toArrow()` on the driver path, a `mapInArrow` that
stages every partition on the staged path. A second one, or one that reads only a part, would run
the stateful stage again, or fail the batch.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import pyarrow as pa

from sink.contract.dsn import redact
from sink.contract.failpoints import failpoint
from sink.errors import BatchTooLarge, NotStreaming
from sink.limits import QuarantineLimit
from sink.rows.batch import BatchInput, prepare
from sink.rows.columns import check_entries
from sink.trace import BatchSpan, batch_span
from sink.transaction.content import Content
from sink.transaction.driver_path import InDriver
from sink.transaction.future import TOLERANCE
from sink.transaction.ledger import Run
from sink.transaction.lineage import location, source_offsets
from sink.transaction.path import Path as WritePath
from sink.transaction.path import PathChoice, plan_bytes
from sink.transaction.staging.content import take_over
from sink.transaction.staging.stage import Stage, drop_stages, open_stage
from sink.transaction.staging.task import Summary, arrow_schema, run_tasks
from sink.transaction.writer import Also, Replayed, Timeouts, Writer, Written

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = ("sql.streaming.runId", "spark.jobGroup.id")
_BATCH_ID = "streaming.sql.batchId"
_RESULT_LIMIT = "spark.driver.maxResultSize"


class Identity(NamedTuple):
    """Which micro-batch this is: the query id is the checkpoint's, the run id that of one start."""

    query_id: UUID
    run_id: UUID
    batch_id: int


class OutboxSink:
    """Writes each micro-batch of one streaming query to the outbox, once.

    `select` makes the batch's tables of the DataFrame's rows; without it the whole DataFrame is
    `BatchInput.entries`. `also(connection, table)` writes whatever else must commit with the batch;
    it runs inside the transaction, and again when the transaction is tried again, so it should do
    nothing but use that connection. `checkpoint` is the query's checkpointLocation, exactly; where
    it is a local path, the source's offsets are kept with the batch, and the first batch refuses
    an older copy of the checkpoint or of the database (`CheckpointBehind`, `LedgerBehind`).

    `path` says which way the rows take. "driver": through the driver. "staged": Spark's tasks copy
    them to Postgres, so the DSN must be one that the executors can use. "auto": staged from 64 MiB
    on, by the plan's estimate or else by the size of the batch before; with `select` or `also`,
    which see the rows in the driver, always the driver. All leave the same tables.

    With `suppress_repeats` an entry is a transition of its subject: it is counted and *not written*
    when its subject has its type already (it changes nothing) or has an entry that occurred later
    (it was overtaken). Only the stream's own entries count, and those written by hand for it. Its
    key counts as used, and `holdfast suppressed` shows it.

    A row dated later than the database's clock and `future_tolerance` is quarantined
    (`future_dated`): as an entry it would overtake all that its subject does until then.

    With `doorbell`, dispatchers that listen (`holdfast dispatch --doorbell`) are told of each batch
    after its COMMIT; where that fails it is a warning, and they find the batch by looking.

    >>> sink = OutboxSink(dsn, stream="payouts", checkpoint=checkpoint)
    >>> writer = decisions.writeStream.option("checkpointLocation", checkpoint)
    >>> query = writer.foreachBatch(sink).trigger(availableNow=True).start()
    >>> query.awaitTermination(120)
    True
    >>> sink.last.counts.entries
    2
    """

    def __init__(
        self,
        dsn: str,
        *,
        stream: str,
        checkpoint: str | PathLike[str] | None = None,
        select: Callable[[pa.Table], BatchInput] | None = None,
        also: "Callable[[psycopg.Connection, pa.Table], None] | None" = None,
        suppress_repeats: bool = False,
        quarantine_limit: QuarantineLimit | None = None,
        path: WritePath = "auto",
        timeouts: Timeouts | None = None,
        doorbell: bool = False,
        future_tolerance: timedelta = TOLERANCE,
    ) -> None:
        """Raises `ValueError` for a setting that cannot be right."""
        where = location(checkpoint)
        self._settings: dict[str, Any] = {
            "stream": stream,
            "checkpoint": where,
            "select": select,
            "also": also,
            "suppress_repeats": suppress_repeats,
            "quarantine_limit": quarantine_limit,
            "path": path,
            "timeouts": timeouts,
            "doorbell": doorbell,
            "future_tolerance": future_tolerance,
        }
        self._path = PathChoice(path, rows_in_driver=bool(select or also))
        self._stage = Stage(dsn, stream, timeouts or Timeouts())
        self._dsn = dsn
        self._checkpoint = where
        self._select = select or BatchInput
        self._also = also
        self._writer = Writer(
            dsn,
            stream,
            checkpoint=where,
            suppress_repeats=suppress_repeats,
            quarantine_limit=quarantine_limit,
            timeouts=timeouts,
            doorbell=doorbell,
            future_tolerance=future_tolerance,
        )
        self._run: Run | None = None
        self.last: Written | Replayed | None = None
        """What happened to the latest batch."""
        self.failure: Exception | None = None
        """What ended the latest batch: `query.awaitTermination()` raises it as Spark's own error,
        with its text alone."""

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Write one micro-batch. Raises the errors of `sink.errors` and whatever `also` raises."""
        self.failure = None
        try:
            self._write_batch(df, batch_id)
        except Exception as error:
            self.failure = error
            raise

    def _write_batch(self, df: "DataFrame", batch_id: int) -> None:
        identity = _identity(df, batch_id)
        if self._path.is_staged(lambda: plan_bytes(df)):
            schema = arrow_schema(df)
            self.apply_staged(schema, lambda stage: run_tasks(df, schema, stage), identity)
        else:
            self.apply(_collected(df), identity)

    def start(self, query_id: UUID, run_id: UUID) -> None:
        """Take the stream for a run, which fences every run that started before; once per run id.

        Without this call the run's first batch does it. Call it as soon as the query has started
        (`query.id`, `query.runId`) and before its first batch is let in: not while one is written.
        Raises `UnadoptedCheckpoint`, `SchemaMismatch` and `SinkUnavailable`; `ValueError` as
        `check`.
        """
        self._take(query_id, run_id)

    def apply(self, table: pa.Table, identity: Identity) -> Written | Replayed:
        """Write the rows of one micro-batch: what `__call__` does once Spark has given them."""
        failpoint("S1")
        started = time.monotonic()
        self._path.record(table.nbytes)
        with batch_span(self._writer.stream, identity.query_id, identity.batch_id) as span:
            batch = prepare(_selected(self._select, table))
            self._take(identity.query_id, identity.run_id)
            also = self._also
            return self._write(
                InDriver(batch),
                identity,
                started,
                span,
                None if also is None else lambda connection: also(connection, table),
            )

    def apply_staged(
        self,
        schema: pa.Schema,
        run_all: Callable[[Stage], Sequence[Summary]],
        identity: Identity,
    ) -> Written | Replayed:
        """Write one micro-batch that tasks stage: what `__call__` does on the staged path.

        `run_all` runs them, and returns a summary of each partition; `schema` is that of the rows.
        Raises as `__call__`, and `StageLost` where the server lost what they staged.
        """
        started = time.monotonic()
        check_entries(schema.empty_table())
        run = self._take(identity.query_id, identity.run_id)
        stage = open_stage(self._stage, run, identity.batch_id)
        try:
            with batch_span(self._writer.stream, identity.query_id, identity.batch_id) as span:
                summaries = run_all(stage)
                failpoint("S1")
                self._path.record(sum(summary.byte_count for summary in summaries))
                content = take_over(stage, summaries, schema, run, identity.batch_id)
                return self._write(content, identity, started, span, None)
        finally:
            # Also of a batch that failed: when it comes again, it is staged again.
            drop_stages(stage, run)

    def check(self) -> None:
        """Reach the database now; raises `SinkUnavailable` or `SchemaMismatch` at once.

        Raises `ValueError` for a new stream that is called as those that are written by hand.
        """
        self._writer.check()

    def read(self, work: "Callable[[psycopg.Connection], _Result]") -> _Result:
        """Return what `work` finds in one read-only transaction, all of it as of one moment.

        `work` acts as the sink's role, and is called again when the transaction is tried again.
        Raises `SchemaMismatch`, `SinkUnavailable` and whatever `work` raises.
        """
        return self._writer.read(work)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _take(self, query_id: UUID, run_id: UUID) -> Run:
        run = self._run
        if run is None or (run.query_id, run.run_id) != (query_id, run_id):
            epoch = self._writer.begin_run(query_id, run_id)
            run = self._run = Run(self._writer.stream, query_id, run_id, epoch)
            _log.info("stream=%s run=%s epoch=%d started", run.stream, run_id, epoch)
        return run

    def _write(
        self,
        content: Content,
        identity: Identity,
        started: float,
        span: BatchSpan,
        also: Also | None,
    ) -> Written | Replayed:
        self.last = self._writer.write(
            identity.batch_id,
            content,
            source_offsets=source_offsets(self._checkpoint, identity.batch_id),
            traceparent=span.traceparent,
            also=also,
        )
        span.written(self.last)
        _report(self.last, time.monotonic() - started)
        failpoint("S9")
        return self.last

    def __reduce__(self) -> tuple[Any, ...]:
        # A connection never travels; a copy opens its own, and begins a run of its own.
        return partial(OutboxSink, self._dsn, **self._settings), ()

    def __repr__(self) -> str:
        return f"OutboxSink({redact(self._dsn)!r}, stream={self._writer.stream!r})"


def _identity(df: "DataFrame", batch_id: int) -> Identity:
    """Read the ids of the batch from the local properties of Spark's stream thread."""
    try:
        context = df.sparkSession.sparkContext
        query_id = context.getLocalProperty(_QUERY_ID)
        run_id = next(filter(None, map(context.getLocalProperty, _RUN_ID)), None)
        streamed = context.getLocalProperty(_BATCH_ID)
    except AttributeError as error:
        raise NotStreaming(
            "this DataFrame has no SparkContext, so its batch has no query id (Spark Connect is not"
            " supported). Nothing was written; run the query in a classic session."
        ) from error
    if not query_id or not run_id or not streamed:
        raise NotStreaming(
            "the sink was not called by foreachBatch on the thread of a streaming query, where each"
            " batch has a query id. Nothing was written; pass the sink to"
            " writeStream.foreachBatch(...), and leave PYSPARK_PIN_THREAD on."
        )
    if int(streamed) != batch_id:
        raise NotStreaming(
            f"Spark runs batch {streamed} on this thread, but the sink was called for batch"
            f" {batch_id}. Nothing was written; call the sink with foreachBatch's own arguments."
        )
    return Identity(UUID(query_id), UUID(run_id), batch_id)


def _selected(select: Callable[[pa.Table], BatchInput], table: pa.Table) -> BatchInput:
    selected: object = select(table)
    if not isinstance(selected, BatchInput):
        raise TypeError(
            f"`select` returned {type(selected).__name__}, expected a BatchInput:"
            " BatchInput(entries), with the tables of the batch. Of this batch nothing was written;"
            " it is in the checkpoint and comes again."
        )
    tables = {"entries": selected.entries, **selected.companions}
    if selected.refused is not None:
        tables["refused"] = selected.refused
    for name, found in tables.items():
        if not isinstance(found, pa.Table):
            raise TypeError(
                f"`select` made a BatchInput whose {name!r} is {type(found).__name__}, expected a"
                " pyarrow.Table. Of this batch nothing was written; it is in the checkpoint and"
                " comes again."
            )
    return selected


def _collected(df: "DataFrame") -> pa.Table:
    try:
        return df.toArrow()
    except Exception as error:
        if _RESULT_LIMIT not in str(error):
            raise
        raise BatchTooLarge(
            f"the batch is larger than {_RESULT_LIMIT}, the most that Spark lets into the driver."
            " Nothing was written, and the batch is still in the checkpoint; set path='staged', so"
            " that its rows go from the tasks to Postgres, and restart. Or raise the limit, or let"
            " the source give less at a time and start from the checkpoint as it was before this"
            " batch."
        ) from error


def _report(outcome: Written | Replayed, seconds: float) -> None:
    counts = outcome.counts
    # An alarm where somebody has to look: a key that came back with other content is not written,
    # and a row that was set aside waits for a person.
    level = logging.WARNING if counts.differing or counts.quarantined else logging.INFO
    _log.log(
        level,
        "stream=%s batch=%d %s rows=%d entries=%d duplicates=%d differing=%d suppressed=%d"
        " quarantined=%d ms=%d",
        outcome.stream,
        outcome.batch_id,
        type(outcome).__name__.lower(),
        counts.rows,
        counts.entries,
        counts.duplicates,
        counts.differing,
        counts.suppressed,
        counts.quarantined,
        round(seconds * 1000),
    )
