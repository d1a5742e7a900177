"""One run of the query: from the check of its checkpoint until it ends, fails or is stopped."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.transaction.continuation import Repeated
from holdfast.spark_app.checkpoint.due_batch import is_due, plan_due
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.journal import claim, require_fit, require_ledger, take
from holdfast.spark_app.checkpoint.repeats import Repeats
from holdfast.spark_app.checkpoint.retention import Retention
from holdfast.spark_app.input.broker import Broker
from holdfast.spark_app.input.file_names import FileNames
from holdfast.spark_app.input.missing_files import require_files
from holdfast.spark_app.lifecycle.batches import Batches
from holdfast.spark_app.lifecycle.failure import QueryFailed, diagnose
from holdfast.spark_app.lifecycle.idle_clock import IdleClock, idle_clock
from holdfast.spark_app.lifecycle.topic_watch import TopicWatch, broker_of, located
from holdfast.spark_app.operator.job import Job, start, use_manager
from holdfast.spark_app.reporting.batch_counts import BatchCounter
from holdfast.spark_app.reporting.metrics import Metrics, State
from holdfast.spark_app.reporting.progress import Progress
from holdfast.spark_app.reporting.query_progress import is_recorded
from holdfast.spark_app.savepoint.begin import begin, with_key_groups

POLL_SECONDS = 0.25

COMMIT_SECONDS = 10
"""How long a stop waits for Spark to record the batch that the sink has just written. After that,
the next start replays the batch, which writes nothing."""


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Trigger:
    """When a batch begins: at most one per interval, when there is data."""

    available_now: bool = False
    """End when everything that is available at the start is processed."""
    interval_ms: int = 200


def attempt(
    spark: SparkSession,
    job: Job,
    sink: OutboxSink,
    trigger: Trigger,
    stop: Event,
    *,
    started: Event | None = None,
    counter: BatchCounter | None = None,
    metrics: Metrics | None = None,
    jvm_gone: Callable[[], bool] = lambda: False,
    retention: Retention | None = None,
    tick: Callable[[], object] = _nothing,
) -> None:
    """Run the query until it is done or `stop` is set.

    After it returns or raises, it writes no batch. `started` is set once a query has started, and
    `tick` is called again and again while it runs.
    Raises QueryFailed when the query ended with an error, and CommandError where a restart cannot
    succeed.
    """
    counter, metrics = counter or BatchCounter(), metrics or Metrics()
    started = started or Event()
    batches: Batches | None = None
    progressed = False
    try:
        files = CheckpointFiles(spark, job.checkpoint, sink.owned)
        use_manager(spark, files)
        with broker_of(spark, job) as broker:
            # Before anything is claimed: a cluster that does not answer leaves no trace.
            job = with_key_groups(spark, located(job, broker))
            sink.use_session(spark)
            names = FileNames(spark, job.paths)
            names.require()
            if job.savepoint and not begin(spark, files, job, sink, job.savepoint, stop.is_set):
                return
            job, is_adopted = _claimed(files, job, sink, broker)
            (retention or Retention()).keep(spark, files)
            watched = None if broker is None else TopicWatch(files, job, broker)
            if watched:
                counter.on_read = watched.require_same
            for run in _runs(spark, files, job, trigger, watched):
                batches = Batches(sink, counter.close)
                with run.started(batches) as query:
                    started.set()
                    query_id, run_id = UUID(query.id), UUID(query.runId)
                    require = partial(_require_input, query, watched)
                    batches.begin(query_id, run_id, require, run.repeated, take=is_adopted)
                    metrics.enter(State.RUNNING)
                    watch(query, batches, stop, metrics, run.idle, names, run.until_idle, tick)
                batches.close()
                if stop.is_set():
                    return
                progressed = True
    except CommandError:
        raise
    except Exception as error:  # also psycopg's errors: a restart may succeed
        # The sink is not thread-safe: the next run needs it exclusively.
        wrote, cause = progressed, None
        if batches is not None:
            batches.close()
            wrote, cause = wrote or batches.wrote, batches.failure
        failure = diagnose(cause or error, jvm_gone=jvm_gone())
        if failure.ends_start and not started.is_set():
            failure = replace(failure, permanent=True)
        raise QueryFailed(failure, wrote=wrote) from error
    finally:
        if batches is not None:
            batches.close()


def _claimed(
    files: CheckpointFiles, job: Job, sink: OutboxSink, broker: Broker | None
) -> tuple[Job, bool]:
    """Return the job that the checkpoint continues, and whether the stream has adopted its query.

    A stream that no query ever adopted is left to the first batch: a start that fails adopts none.
    """
    require_fit(files, job, sink)
    # It fences a run that started before, which may write into the checkpoint until then.
    is_adopted = take(files, sink)
    job = claim(files, job, sink, broker)
    require_ledger(files, job, sink)
    return job, is_adopted


@dataclass(frozen=True)
class _Run:
    """One run of the query."""

    start: Callable[[Batches], StreamingQuery]
    repeated: Repeated | None
    idle: IdleClock | None
    until_idle: bool = False
    """Whether it ends when no source has new data."""

    @contextmanager
    def started(self, batches: Batches) -> Iterator[StreamingQuery]:
        query = self.start(batches)
        try:
            yield query
        finally:
            # A JVM that has died has ended it.
            with suppress(Py4JError, OSError):
                query.stop()


def _require_input(query: StreamingQuery, watched: TopicWatch | None, batch_id: int) -> None:
    """Raise where what the batch was planned to read is not there."""
    require_files(query, batch_id)
    if watched is not None:
        watched.require(batch_id)


def _runs(
    spark: SparkSession,
    files: CheckpointFiles,
    job: Job,
    trigger: Trigger,
    watched: TopicWatch | None,
) -> Iterator[_Run]:
    """Yield the runs, each after the one before has ended.

    One for each batch that the checkpoint repeats, then one for all others. Where that one has no
    new data and a batch without rows is due, there is a run for it, and another one for the rest.
    `require_ours` raises where another driver has taken the stream since.
    """

    def of(batches: Batches, **when: Any) -> StreamingQuery:
        return start(spark, job, batches, **when)

    repeats = Repeats.read(files)
    while repeats and (step := repeats.put_back(len(job.sources))) is not None:
        _report(f"repeating batch {step.batch_id} of {repeats.until} as it was planned")
        yield _Run(partial(of, planned_only=True), step.repeated, None)
    while True:
        repeats = Repeats.read(files)
        rest = repeats.rest if repeats else None
        yield _Run(
            partial(of, available_now=trigger.available_now, interval_ms=trigger.interval_ms),
            rest,
            idle_clock(spark, job, trigger.interval_ms, watched),
            until_idle=is_due(files) and not trigger.available_now,
        )
        if is_due(files):
            _report(f"running batch {plan_due(files)} without rows: the watermark has moved")
            yield _Run(partial(of, planned_only=True), rest, None)
        if trigger.available_now:
            return


def _report(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the command's own report


def watch(
    query: StreamingQuery,
    batches: Batches,
    stop: Event,
    metrics: Metrics | None = None,
    idle: IdleClock | None = None,
    names: FileNames | None = None,
    until_idle: bool = False,
    tick: Callable[[], object] = _nothing,
) -> None:
    """Report each batch until the query ends; raises its error, unless `stop` ended it.

    `tick` is called again and again. With `until_idle`, it also stops the query where the first
    trigger has no new data.
    """
    progress = Progress(query, batches, metrics or Metrics())
    try:
        while not _ended(query):
            if idle:
                idle.ask(query)
            rows = progress.show()
            if idle:
                idle.observe(rows)
            if names:
                names.require_in_time()
            tick()
            if stop.is_set() or (until_idle and progress.waits_since_start):
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
