"""`OutboxSink`: what `df.writeStream.foreachBatch(...)` calls for each micro-batch.

There is exactly one action on the DataFrame, `toArrow()`. A second one, or one that reads only a
part, would run the stateful stage again, or fail the batch.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pyarrow as pa

from sink.batch import BatchInput, prepare
from sink.contract.dsn import redact
from sink.contract.failpoints import failpoint
from sink.driver_path import InDriver
from sink.errors import NotStreaming
from sink.writer import Replayed, Timeouts, Writer, Written

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = ("sql.streaming.runId", "spark.jobGroup.id")
_BATCH_ID = "streaming.sql.batchId"


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
    nothing but use that connection. `checkpoint` is the query's checkpointLocation; where it is a
    local path, the source's offsets are kept with the batch.

    With `suppress_repeats`, an entry is counted and not written when its subject has its type
    already (it changes nothing) or has an entry that occurred later (it was overtaken).
    """

    def __init__(
        self,
        dsn: str,
        *,
        stream: str,
        checkpoint: str | None = None,
        select: Callable[[pa.Table], BatchInput] | None = None,
        also: "Callable[[psycopg.Connection, pa.Table], None] | None" = None,
        suppress_repeats: bool = True,
        timeouts: Timeouts | None = None,
    ) -> None:
        """Raises `ValueError` for a DSN or a stream name that cannot be right."""
        self._settings: dict[str, Any] = {
            "stream": stream,
            "checkpoint": checkpoint,
            "select": select,
            "also": also,
            "suppress_repeats": suppress_repeats,
            "timeouts": timeouts,
        }
        self._dsn = dsn
        self._checkpoint = checkpoint
        self._select = select or BatchInput
        self._also = also
        self._writer = Writer(
            dsn,
            stream,
            checkpoint=checkpoint,
            suppress_repeats=suppress_repeats,
            timeouts=timeouts,
        )
        self._run: tuple[UUID, UUID] | None = None
        self.last: Written | Replayed | None = None
        """What happened to the latest batch."""

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Write one micro-batch. Raises the errors of `sink.errors` and whatever `also` raises."""
        identity = _identity(df, batch_id)
        self.apply(df.toArrow(), identity)

    def start(self, query_id: UUID, run_id: UUID) -> None:
        """Take the stream for a run, which fences every run that started before; once per run id.

        Without this call the run's first batch does it. Call it as soon as the query has started
        (`query.id`, `query.runId`) and before its first batch is let in: not while one is written.
        Raises `UnadoptedCheckpoint`, `SchemaMismatch` and `SinkUnavailable`.
        """
        if self._run == (query_id, run_id):
            return
        epoch = self._writer.begin_run(query_id, run_id)
        self._run = query_id, run_id
        _log.info("stream=%s run=%s epoch=%d started", self._writer.stream, run_id, epoch)

    def apply(self, table: pa.Table, identity: Identity) -> Written | Replayed:
        """Write the rows of one micro-batch: what `__call__` does once Spark has given them."""
        failpoint("S1")
        started = time.monotonic()
        batch = prepare(self._select(table))
        self.start(identity.query_id, identity.run_id)
        also = self._also
        self.last = self._writer.write(
            identity.batch_id,
            InDriver(batch),
            source_offsets=_source_offsets(self._checkpoint, identity.batch_id),
            also=None if also is None else lambda connection: also(connection, table),
        )
        _report(self.last, time.monotonic() - started)
        failpoint("S9")
        return self.last

    def check(self) -> None:
        """Reach the database now; raises `SinkUnavailable` or `SchemaMismatch` at once."""
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


def _source_offsets(checkpoint: str | None, batch_id: int) -> str | None:
    """Return what Spark wrote of the batch's source positions, before it ran the batch."""
    if checkpoint is None:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(unquote(parts.path) if parts.scheme else checkpoint)
    offsets = path / "offsets" / str(batch_id)
    return offsets.read_text(encoding="utf-8") if offsets.is_file() else None


def _report(outcome: Written | Replayed, seconds: float) -> None:
    counts = outcome.counts
    _log.info(
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
