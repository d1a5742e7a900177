"""A job from start to end: check everything, start Spark, watch, stop between two batches."""

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sink.contract.exits import CommandError, ExitCode
from sink.errors import SinkError
from sink.foreach_batch import OutboxSink
from spark_app import companions, output, session
from spark_app.batches import Batches
from spark_app.checkpoint import claim
from spark_app.exposure.errors import PolicyError
from spark_app.exposure.policy import Policy
from spark_app.failure import explain, one_line
from spark_app.java import WAY_OUT, require_java
from spark_app.job import Job, start
from spark_app.progress import Progress
from spark_app.source import absolute, require_directory
from spark_app.stopping import StopSignals

POLL_SECONDS = 0.25

COMMIT_SECONDS = 10
"""How long a stop waits for Spark to record the batch that the sink has just written. After that,
the batch comes again at the next start and writes nothing."""


@dataclass(frozen=True)
class Trigger:
    """When a batch begins: at most one per interval, when there is something to do."""

    available_now: bool = False
    """End when everything that is there at the start is done."""
    interval_ms: int = 1000


def run_files(
    *, policy: Path, path: str, checkpoint: str, dsn: str, trigger: Trigger, **described: Any
) -> None:
    """Run the job that reads files, as the command line describes it; the rest as in `Job`."""
    try:
        rules = Policy.load(policy)
    except PolicyError as error:
        raise CommandError(f"{error} Nothing was started.", ExitCode.USAGE) from error
    # It is kept with the stream in the database, where nobody knows our working directory.
    checkpoint = absolute(checkpoint)
    run(Job(policy=rules, path=absolute(path), checkpoint=checkpoint, **described), dsn, trigger)


def run(job: Job, dsn: str, trigger: Trigger) -> None:
    """Run a job until it is done, fails, or is asked to stop by SIGTERM or SIGINT.

    Raises CommandError in one line. What can be known without Spark is checked before it starts.
    """
    require_directory(job.path, job.checkpoint)
    with closing(_sink(job, dsn)) as sink, StopSignals() as signals:
        if not session.launched_by_spark_submit():
            require_java()
        spark = _spark(job)
        try:
            # Spark's context takes SIGINT for itself.
            signals.install()
            if not signals.requested.is_set():
                _run(spark, job, sink, trigger, signals.requested)
        finally:
            # A JVM that is gone has said so already.
            with suppress(Py4JError, OSError):
                spark.stop()


def _run(spark: SparkSession, job: Job, sink: OutboxSink, trigger: Trigger, stop: Event) -> None:
    batches = Batches(sink)
    try:
        claim(spark, job)
        query = start(
            spark,
            job,
            batches,
            available_now=trigger.available_now,
            interval_ms=trigger.interval_ms,
        )
        _begin(query, batches)
        watch(query, batches, stop)
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise CommandError(explain(batches.failure or error)) from error


def _begin(query: StreamingQuery, batches: Batches) -> None:
    """Take the stream as soon as the run has its id: a run that started before is fenced by it."""
    try:
        batches.begin(UUID(query.id), UUID(query.runId))
    except Exception as error:
        query.stop()
        raise CommandError(explain(error)) from error


def watch(query: StreamingQuery, batches: Batches, stop: Event) -> None:
    """Report each batch until the query ends; raises what ended it, unless that was `stop`."""
    progress = Progress(query, batches)
    try:
        while not _ended(query):
            progress.show()
            if stop.is_set():
                _stop_between_batches(query, batches)
    except StreamingQueryException:
        progress.show()
        # A batch that came to the closed gate was turned away, which Spark takes for a failure.
        if not batches.closed or batches.failure is not None:
            raise
    progress.show()


def _stop_between_batches(query: StreamingQuery, batches: Batches) -> None:
    finished = batches.close()
    for _ in range(round(COMMIT_SECONDS / POLL_SECONDS)):
        recorded = query.lastProgress
        if finished < 0 or (recorded and recorded.batchId >= finished):
            break
        if _ended(query):
            return
    query.stop()


def _ended(query: StreamingQuery) -> bool:
    """Wait a moment; whether the query has ended. Raises what it ended with."""
    ended = query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type] # takes a float as well
    return bool(ended)


def _sink(job: Job, dsn: str) -> OutboxSink:
    try:
        sink = OutboxSink(
            dsn,
            stream=job.stream,
            checkpoint=job.checkpoint,
            select=output.select,
            also=companions.writer(job.stream),
        )
        sink.check()
    except ValueError as error:
        raise CommandError(f"{error}. Nothing was started.", ExitCode.USAGE) from error
    except SinkError as error:
        raise CommandError(explain(error)) from error
    return sink


def _spark(job: Job) -> SparkSession:
    try:
        return session.create(f"holdfast {job.stream}")
    except (PySparkRuntimeError, Py4JError) as error:
        raise CommandError(f"Spark did not start: {one_line(str(error))}. {WAY_OUT}") from error
