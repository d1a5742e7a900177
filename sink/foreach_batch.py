"""`OutboxSink`: what `df.writeStream.foreachBatch(...)` calls for each micro-batch.

It runs exactly one action on the DataFrame: on the driver path one that collects Arrow batches, on
the staged path a `mapInArrow` that stages every partition. A second action, or one that reads only
a part, would run the stateful stage again or fail the batch.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args
from uuid import UUID

import pyarrow as pa

from holdfast.sink.contract.checkpoint import needs_manager
from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.errors import Fenced
from holdfast.sink.rows.batch import BatchInput, prepare, selected
from holdfast.sink.rows.columns import check_entries
from holdfast.sink.rows.future_dated import TOLERANCE
from holdfast.sink.rows.outcome import Replayed, Run, Written
from holdfast.sink.rows.quarantine_limit import QuarantineLimit
from holdfast.sink.session import (
    UNKNOWN_BYTES,
    Identity,
    Session,
    client_session,
    collected,
    session_of,
    spark_of,
)
from holdfast.sink.trace import BatchSpan, batch_span
from holdfast.sink.transaction import continuation, ledger
from holdfast.sink.transaction.companion import Also, BatchContext, takes_batch
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.continuation import Continuation, Repeated
from holdfast.sink.transaction.database import Timeouts
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.lineage import (
    location,
    query_of,
    require_safe,
    unreadable,
)
from holdfast.sink.transaction.login import Login
from holdfast.sink.transaction.plans import Chain, read_plan
from holdfast.sink.transaction.staging import (
    Stage,
    Summary,
    arrow_schema,
    drop_stages,
    open_stage,
    run_tasks,
    take_over,
)
from holdfast.sink.transaction.writer import Writer

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    UserAlso = (
        Callable[[psycopg.Connection, pa.Table], None]
        | Callable[[psycopg.Connection, pa.Table, BatchContext], None]
    )

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

WritePath = Literal["auto", "driver", "staged"]
"""How the rows of a batch reach Postgres: through the driver, or directly from the tasks.

Both leave the same rows in the same tables. The driver path is one connection and one COPY; the
staged path costs a table, and a connection for each task, and the driver holds no rows.
"""

STAGED_BYTES = 64 << 20
"""`auto` stages batches of at least this size."""


STOP_POLL_SECONDS = 0.1


class PathChoice:
    """Chooses the path of each batch. The choice affects cost only, never content."""

    def __init__(self, path: WritePath, *, rows_in_driver: bool) -> None:
        """With `rows_in_driver`, `select` or `also` reads the rows there. Raises `ValueError`."""
        if path not in get_args(WritePath):
            raise ValueError(
                f"path {path!r} is not known: use one of {', '.join(get_args(WritePath))}"
            )
        if path == "staged" and rows_in_driver:
            raise ValueError(
                "path='staged' keeps the rows out of the driver, where `select` and `also` need"
                " them: shape the DataFrame in Spark and leave both out, or use path='driver'"
            )
        self._path: WritePath = "driver" if rows_in_driver else path
        self._last_bytes = 0

    def is_staged(self, estimated: Callable[[], int]) -> bool:
        """Choose for the next batch; `estimated` returns the plan's size estimate in bytes."""
        if self._path != "auto":
            return self._path == "staged"
        size = estimated()
        return (self._last_bytes if size >= UNKNOWN_BYTES else size) >= STAGED_BYTES

    def record(self, size: int) -> None:
        """Record the Arrow bytes of a batch, as the estimate for a next one of unknown size."""
        self._last_bytes = size


class OutboxSink:
    """Writes each micro-batch of one streaming query to the outbox, once.

    `select` makes the batch's tables from the DataFrame's rows; without it the whole DataFrame is
    `BatchInput.entries`. `also(connection, table, batch)` writes what else must commit with the
    batch, a `BatchContext`; one with two parameters is called without it. It runs inside the
    transaction, and again when the transaction is retried, so it must use that connection only.
    `checkpoint` is exactly the query's checkpointLocation, at a place where two drivers are safe
    (`holdfast.sink.contract.checkpoint.FILE_SYSTEMS`). The source's offsets and the names of the
    files that the batch reads are stored with the batch, and the first batch refuses an older copy
    of the checkpoint or of the database (`CheckpointBehind`,
    `LedgerBehind`).

    A query of which the stream has no batch begins with batch 0; anything else means that the
    database lost its batches (`LedgerBehind`), or that the stream got another name
    (`UnadoptedCheckpoint`). `first_batch` declares another number, for a query that ran before it
    got this sink. Leave it: it counts for no later batch, and a new checkpoint begins with 0.

    `path` sets how the rows reach Postgres. "driver": through the driver. "staged": Spark's tasks
    copy them, so the executors must be able to use the DSN. "auto": staged from 64 MiB on, by the
    plan's estimate or else by the size of the previous batch; with `select` or `also`, which read
    the rows in the driver, always "driver". All write the same rows to the same tables.

    With `suppress_repeats` an entry is a transition of its subject: it is counted and *not written*
    when its subject already has its type (a repeat) or has an entry that occurred later (it was
    overtaken). Only the stream's own entries count, and those written by hand for it. Its key
    counts as used, and `holdfast suppressed` shows it.

    `dsn` and `password` may each be a function that returns text. It is called for each connection,
    also in the tasks of the staged path, so a token that expires lasts (IAM of managed databases).

    A row dated later than the database's clock plus `future_tolerance` is quarantined
    (`future_dated`): as an entry it would overtake every entry of its subject until then.

    With `doorbell`, dispatchers are notified of each batch after its COMMIT. A failed notification
    is logged as a warning; their next heartbeat finds the batch, five seconds later at most.

    >>> sink = OutboxSink(dsn, stream="payouts", checkpoint=checkpoint)
    >>> writer = decisions.writeStream.option("checkpointLocation", checkpoint)
    >>> query = writer.foreachBatch(sink).trigger(availableNow=True).start()
    >>> query.awaitTermination(120)
    True
    >>> sink.outcome().counts.entries
    2
    """

    def __init__(
        self,
        dsn: str | Callable[[], str],
        *,
        stream: str,
        password: str | Callable[[], str] | None = None,
        checkpoint: str | PathLike[str] | None = None,
        first_batch: int | None = None,
        select: Callable[[pa.Table], BatchInput] | None = None,
        also: "UserAlso | None" = None,
        suppress_repeats: bool = False,
        quarantine_limit: QuarantineLimit | None = None,
        path: WritePath = "auto",
        timeouts: Timeouts | None = None,
        doorbell: bool = True,
        future_tolerance: timedelta = TOLERANCE,
    ) -> None:
        """Raises `ValueError` for an invalid setting."""
        where = location(checkpoint)
        login = Login(dsn, password)
        self._settings: dict[str, Any] = {
            "stream": stream,
            "password": password,
            "checkpoint": where,
            "first_batch": first_batch,
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
        self._stage = Stage(login, stream, timeouts or Timeouts())
        self._dsn = dsn
        self._checkpoint = where
        self._session: Session | None = None
        self._client: str | None = None
        self._select = select or BatchInput
        self._also = None if also is None else _with_batch(also)
        self._writer = Writer(
            login,
            stream,
            checkpoint=where,
            first_batch=first_batch,
            suppress_repeats=suppress_repeats,
            quarantine_limit=quarantine_limit,
            timeouts=timeouts,
            doorbell=doorbell,
            future_tolerance=future_tolerance,
        )
        self._chain = Chain(stream)
        self._run: Run | None = None
        self.last: Written | Replayed | None = None
        """The outcome of the latest batch."""
        self.failure: Exception | None = None
        """The error of the latest batch: `query.awaitTermination()` raises Spark's own error, which
        holds only its text."""

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Write one micro-batch.

        Raises those of `holdfast.sink.errors` and what `also` raises, of which a `Transient` is
        tried again until the deadline.
        """
        self.failure = None
        try:
            self._write_batch(df, batch_id)
        except Exception as error:
            self.failure = error
            raise

    def _write_batch(self, df: "DataFrame", batch_id: int) -> None:
        session = self._session
        if session is None or not session.has(df):
            session = self._use(spark_of(df))
        identity = session.identity(df, batch_id, self._writer.files)
        schema = arrow_schema(df)
        if self._path.is_staged(lambda: session.plan_bytes(df)):
            self.apply_staged(schema, lambda stage: run_tasks(df, stage), identity)
        else:
            if self._settings["select"] is None:
                check_entries(schema.empty_table())
            self.apply(collected(df, schema), identity)

    def claim(self, query_id: UUID | None = None, *, repeated: Repeated | None = None) -> bool:
        """Take the stream before its query starts, for what changes the files of a checkpoint.

        Every earlier run is fenced, and the next run of this sink continues the epoch. From then
        on, whatever this sink does raises `Fenced` once another run has taken the stream, also
        another claim: it is taken from its own runs only. A stream that no run ever had is left
        free; it must still be free when a run takes it. Returns whether the stream has adopted a
        query. Raises as `start`; without a query id, neither it nor the checkpoint is compared.
        """
        return self._writer.claim(query_id, repeated=repeated)

    def owned(self, work: Callable[[], _Result], *, take_free: bool = False) -> _Result:
        """Return the result of `work`, during which no other run can take the stream.

        `work` is called again when the transaction is retried, and must not use this sink. With
        `take_free`, a stream that no run ever had is taken first; it adopts nothing. Raises
        `Fenced`, without a call, where another run has taken the stream since `claim`; also
        `SchemaMismatch`, `SinkUnavailable` and whatever `work` raises.
        """
        return self._writer.owned(work, take_free=take_free)

    def start(self, query_id: UUID, run_id: UUID, *, repeated: Repeated | None = None) -> None:
        """Take the stream for a run and fence every earlier run; once per run id.

        Without this call the run's first batch does it. Call it as soon as the query has started
        (`query.id`, `query.runId`) and before its first batch runs, not while one is written.
        `repeated` is for a checkpoint that went back and whose plans are put back: its batches are
        in the ledger. A batch that then has other content is refused (`ReplayDiverged`).
        Raises `UnadoptedCheckpoint`, `CheckpointUnreadable`, `SchemaMismatch` and
        `SinkUnavailable`; `ValueError` as `check`.
        """
        self._take(query_id, run_id, repeated)

    def use_session(self, spark: "SparkSession") -> None:
        """Find the checkpoint as this session does: on any file system that Spark supports.

        The first batch does it. Call it before `start`, which otherwise compares only a checkpoint
        on a local path. Raises `CheckpointUnreadable` and `UnsafeCheckpoint`.
        """
        self._use(spark)

    def apply(self, table: pa.Table, identity: Identity) -> Written | Replayed:
        """Write the rows of one micro-batch: `__call__` on the driver path."""
        failpoint("S1")
        started = time.monotonic()
        self._path.record(table.nbytes)
        with batch_span(self._writer.stream, identity.query_id, identity.batch_id) as span:
            batch = prepare(selected(self._select, table))
            self._take(identity.query_id, identity.run_id)
            also = self._also
            return self._write(
                InDriver(batch),
                identity,
                started,
                span,
                None if also is None else partial(also, table),
            )

    def apply_staged(
        self,
        schema: pa.Schema,
        run_all: Callable[[Stage], Sequence[Summary]],
        identity: Identity,
    ) -> Written | Replayed:
        """Write one micro-batch that tasks stage: `__call__` on the staged path.

        `run_all` runs the tasks and returns a summary of each partition; `schema` is that of the
        rows. Raises as `__call__`, and `StageLost` where the server lost staged rows.
        """
        started = time.monotonic()
        check_entries(schema.empty_table())
        run = self._take(identity.query_id, identity.run_id)
        stage = open_stage(self._stage, run, identity.batch_id, schema)
        try:
            with batch_span(self._writer.stream, identity.query_id, identity.batch_id) as span:
                summaries = run_all(stage)
                failpoint("S1")
                self._path.record(sum(summary.byte_count for summary in summaries))
                content = take_over(stage, summaries, schema, run, identity.batch_id)
                return self._write(content, identity, started, span, None)
        finally:
            # Also after a failure: the replayed batch is staged again.
            drop_stages(stage, run)

    def _use(self, spark: "SparkSession") -> Session:
        session = session_of(spark, self._client)
        if self._checkpoint is not None:
            try:
                files = session.files(self._checkpoint)
                require_safe(files.location)
                if needs_manager(files.location):
                    session.require_manager(files.location)
            except OSError as error:
                raise unreadable(self._checkpoint, error) from error
            self._writer.files = files
        self._session = session
        return session

    @property
    def checkpoint(self) -> str | None:
        """The query's checkpointLocation as text; None where it was not given."""
        return self._checkpoint

    def check(self) -> None:
        """Connect once; raises `SinkUnavailable` or `SchemaMismatch` without a retry.

        Raises `ValueError` for a new stream with a name reserved for entries written by hand.
        """
        self._writer.check()

    def read(self, work: "Callable[[psycopg.Connection], _Result]") -> _Result:
        """Return the result of `work`, which runs in one read-only transaction with one snapshot.

        `work` acts as the sink's role, and is called again when the transaction is retried.
        Raises `SchemaMismatch`, `SinkUnavailable` and whatever `work` raises.
        """
        return self._writer.read(work)

    def outcome(self, batch_id: int | None = None) -> Written | None:
        """Return what the ledger has of a batch of the query; None where it has nothing.

        Without `batch_id`, of the newest one. The query is the one that this sink runs, or that of
        its checkpoint where that can be read here, else the one that the stream has adopted. Of a
        batch with an accepted replay it is the replay, once that is written. It reads the database,
        so it answers in every process, also in a client of Spark Connect.
        Raises `SchemaMismatch` and `SinkUnavailable`.
        """
        stream, run = self._writer.stream, self._run
        query_id = run.query_id if run else query_of(self._writer.files)
        return self.read(lambda connection: ledger.outcome(connection, stream, query_id, batch_id))

    def proof(self, query_id: UUID, batch_id: int) -> Continuation | None:
        """Return the proof of a batch of this stream; None where the ledger does not have it.

        Raises `SchemaMismatch` and `SinkUnavailable`.
        """
        stream = self._writer.stream
        return self.read(
            lambda connection: continuation.proof(connection, stream, query_id, batch_id)
        )

    def continue_from(self, previous: Continuation, query_id: UUID, batch_id: int) -> None:
        """Let the stream adopt `query_id`, whose checkpoint has the state after `previous`.

        The ledger gets an empty batch `batch_id` of it, so its first batch is `batch_id + 1`.
        Runs of another query id are refused at their next batch. Idempotent.
        Raises `UnadoptedCheckpoint` where the ledger does not have `previous` with its digest, or
        the stream has adopted a third query id; then nothing changes.
        """
        self._writer.continue_from(previous, query_id, batch_id)

    def stop(self, query: "StreamingQuery") -> None:
        """Stop a running query of this sink between two batches, in any process that has the query.

        The batch that is being written is finished, and Spark records it. The next one is refused
        before anything of it is written, so no batch that is written comes again. Call it in the
        thread that waits for the query, not in a handler of a signal. A newer run of the stream is
        left alone. Raises the error by which the query failed meanwhile, and `SinkUnavailable`.
        """
        # The connection of this sink may be writing a batch in another thread.
        beside = OutboxSink(self._dsn, **self._settings)
        try:
            while query.isActive:
                beside._writer.end_run(UUID(str(query.runId)))
                if not query.status["isTriggerActive"]:
                    break
                time.sleep(STOP_POLL_SECONDS)
        finally:
            query.stop()
            beside.close()
        error = query.exception()
        if error is not None and Fenced.__name__ not in str(error):
            raise error

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _take(self, query_id: UUID, run_id: UUID, repeated: Repeated | None = None) -> Run:
        run = self._run
        if run is None or (run.query_id, run.run_id) != (query_id, run_id):
            run = self._run = self._writer.begin_run(query_id, run_id, repeated=repeated)
            _log.info("stream=%s run=%s epoch=%d started", run.stream, run_id, run.epoch)
        return run

    def _write(
        self,
        content: Content,
        identity: Identity,
        started: float,
        span: BatchSpan,
        also: Also | None,
    ) -> Written | Replayed:
        plan = read_plan(self._writer.files, identity.batch_id)
        memory = self._session.memory(identity) if plan and self._session else None
        self.last = self._writer.write(
            identity.batch_id,
            content,
            source_offsets=plan.source_offsets if plan else None,
            replaced=self._chain.replaced(self._writer.files, identity.run_id, plan, memory),
            traceparent=span.traceparent,
            also=also,
        )
        span.written(self.last)
        _report(self.last, time.monotonic() - started)
        failpoint("S9")
        return self.last

    def __reduce__(self) -> tuple[Any, ...]:
        # A connection cannot be pickled: a copy opens its own and begins its own run.
        return _copy_of, (self._dsn, self._settings, client_session())

    def __repr__(self) -> str:
        return f"OutboxSink({self._stage.login.shown()}, stream={self._writer.stream!r})"


def _with_batch(
    also: Callable[..., None],
) -> "Callable[[pa.Table, psycopg.Connection, BatchContext], None]":
    """Return `also` as the transaction calls it, after the table. Raises `ValueError`."""
    if takes_batch(also):
        return lambda table, connection, batch: also(connection, table, batch)
    return lambda table, connection, _batch: also(connection, table)


def _copy_of(
    dsn: str | Callable[[], str], settings: dict[str, Any], client: str | None
) -> OutboxSink:
    sink = OutboxSink(dsn, **settings)
    sink._client = client  # noqa: SLF001 - of the same module
    return sink


def _report(outcome: Written | Replayed, seconds: float) -> None:
    counts = outcome.counts
    # A warning where a person must act: a known key with different content is not written, and a
    # quarantined row waits for a decision.
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
