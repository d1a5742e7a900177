"""One run of the query: from the check of its checkpoint until it ends, fails or is stopped."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sink.contract.exits import CommandError
from sink.foreach_batch import OutboxSink
from spark_app.checkpoint.journal import claim, require_ledger
from spark_app.checkpoint.retention import Retention
from spark_app.input.missing_files import require_files
from spark_app.lifecycle.batches import Batches
from spark_app.lifecycle.failure import QueryFailed, diagnose
from spark_app.lifecycle.idle_clock import IdleClock, idle_clock
from spark_app.lifecycle.stream_ownership import StreamOwnership
from spark_app.operator.job import Job, start
from spark_app.reporting.batch_counts import BatchCounter
from spark_app.reporting.metrics import Metrics, State
from spark_app.reporting.progress import Progress
from spark_app.reporting.query_progress import is_recorded
from spark_app.savepoint.begin import begin

POLL_SECONDS = 0.25

COMMIT_SECONDS = 10
"""How long a stop waits for Spark to record the batch that the sink has just written. After that,
the next start replays the batch, which writes nothing."""


@dataclass(frozen=True)
class Trigger:
    """When a batch begins: at most one per interval, when there is data."""

    available_now: bool = False
    """End when everything that is available at the start is processed."""
    interval_ms: int = 1000


def attempt(
    spark: SparkSession,
    job: Job,
    sink: OutboxSink,
    trigger: Trigger,
    stop: Event,
    *,
    ownership: StreamOwnership | None = None,
    counter: BatchCounter | None = None,
    metrics: Metrics | None = None,
    jvm_gone: Callable[[], bool] = lambda: False,
    retention: Retention | None = None,
) -> None:
    """Run the query until it is done or `stop` is set.

    After it returns or raises, it writes no batch. Raises QueryFailed when the query ended with an
    error, and CommandError where a restart cannot succeed.
    """
    batches = Batches(sink, (counter or BatchCounter()).close)
    metrics = metrics or Metrics()
    ownership = ownership or StreamOwnership(job.stream)
    query: StreamingQuery | None = None
    try:
        ownership.require(sink)
        if job.savepoint and not begin(spark, job, sink, job.savepoint, stop.is_set):
            return
        job = claim(spark, job, sink)
        require_ledger(spark, job, sink)
        (retention or Retention()).keep(spark, job.checkpoint)
        query = start(
            spark,
            job,
            batches,
            available_now=trigger.available_now,
            interval_ms=trigger.interval_ms,
        )
        # As early as possible: it fences a run that started before.
        run_id = UUID(query.runId)
        ownership.claim_with(run_id)
        batches.begin(UUID(query.id), run_id, partial(require_files, query))
        ownership.confirm()
        metrics.enter(State.RUNNING)
        watch(query, batches, stop, metrics, idle_clock(spark, job, trigger.interval_ms))
    except CommandError:
        raise
    except Exception as error:  # also psycopg's errors: a restart may succeed
        # The sink is not thread-safe: the next run needs it exclusively.
        batches.close()
        failure = diagnose(batches.failure or error, jvm_gone=jvm_gone())
        raise QueryFailed(failure, wrote=batches.wrote) from error
    finally:
        batches.close()
        _end(query)


def watch(
    query: StreamingQuery,
    batches: Batches,
    stop: Event,
    metrics: Metrics | None = None,
    idle: IdleClock | None = None,
) -> None:
    """Report each batch until the query ends; raises its error, unless `stop` ended it."""
    progress = Progress(query, batches, metrics or Metrics())
    try:
        while not _ended(query):
            if idle:
                idle.ask(query)
            rows = progress.show()
            if idle:
                idle.observe(rows)
            if stop.is_set():
                _stop_between_batches(query, batches)
    except StreamingQueryException:
        progress.show()
        # The closed gate rejects a batch, which Spark reports as a failure.
        if not batches.closed or batches.failure is not None:
            raise
    progress.show()


def _stop_between_batches(query: StreamingQuery, batches: Batches) -> None:
    finished = batches.close()
    for _ in range(round(COMMIT_SECONDS / POLL_SECONDS)):
        if finished < 0 or is_recorded(query, finished):
            break
        if _ended(query):
            return
    query.stop()


def _ended(query: StreamingQuery) -> bool:
    """Wait up to `POLL_SECONDS`; return whether the query has ended. Raises its error."""
    ended = query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type] # takes a float as well
    return bool(ended)


def _end(query: StreamingQuery | None) -> None:
    if query is not None:
        # A JVM that has died has ended it.
        with suppress(Py4JError, OSError):
            query.stop()
