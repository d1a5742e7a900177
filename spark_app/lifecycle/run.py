"""A job from start to end: check everything, start Spark, restart on failure, stop on request."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.trace_export import exported_spans
from holdfast.sink.errors import SinkError
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.rows.future_dated import TOLERANCE, TOLERANCE_MAX
from holdfast.sink.rows.quarantine_limit import REFUSED_ROWS, QuarantineLimit
from holdfast.spark_app.checkpoint.retention import Retention
from holdfast.spark_app.exposure.errors import PolicyError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.file_names import describe_skipped, skipped
from holdfast.spark_app.input.kafka_faults import KafkaFault, require_server
from holdfast.spark_app.input.source import (
    absolute,
    require_apart,
    require_directory,
    require_plain,
)
from holdfast.spark_app.lifecycle.attempt import Trigger, attempt
from holdfast.spark_app.lifecycle.failure import QueryFailed, explain
from holdfast.spark_app.lifecycle.stopping import JvmStop, StopSignals
from holdfast.spark_app.lifecycle.supervisor import MAX_RESTARTS, supervise
from holdfast.spark_app.operator import output
from holdfast.spark_app.operator.job import Job
from holdfast.spark_app.reporting.batch_counts import BatchCounter
from holdfast.spark_app.reporting.metrics import Metrics, State, served
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.engine import Engine
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit
from holdfast.spark_app.savepoint.folder import require_place
from holdfast.spark_app.savepoint.schedule import Savepoints, Schedule

__all__ = ["Running", "Trigger", "run", "run_described"]


@dataclass(frozen=True)
class Running:
    """How the process runs the job; none of it changes what the job decides."""

    max_restarts: int = MAX_RESTARTS
    """Consecutive restarts without a written batch in between; 0 disables restarts."""
    state_memory_mb: int = session.STATE_MEMORY_MB
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    """0 disables metrics."""
    refused_rows: int = REFUSED_ROWS
    """Maximum of one batch; above it the whole batch is refused."""
    doorbell: bool = True
    """Notify listening dispatchers of each batch."""
    retention: Retention = field(default_factory=Retention)
    savepoints: Schedule | None = None
    """Savepoints while the job runs."""
    launch: Launch = field(default_factory=Launch)


def run_described(
    *,
    policy: Path,
    paths: Sequence[str],
    checkpoint: str,
    dsn: str,
    trigger: Trigger,
    running: Running | None = None,
    savepoint: str | None = None,
    **described: Any,
) -> None:
    """Run the job that the command line describes; `described` is for `Job`."""
    try:
        rules = Policy.load(policy)
    except PolicyError as error:
        raise CommandError(
            f"{error} Nothing was started.", ExitCode.USAGE, code="invalid_policy"
        ) from error
    # The database stores it with the stream, and does not know our working directory.
    checkpoint = absolute(checkpoint)
    if savepoint is not None:
        savepoint = absolute(savepoint)
        require_place(savepoint, "--from-savepoint")
    read = tuple(map(absolute, paths))
    for path in read:
        _report_skipped(path)
    job = Job(policy=rules, paths=read, checkpoint=checkpoint, savepoint=savepoint, **described)
    run(job, dsn, trigger, running or Running())


def run(job: Job, dsn: str, trigger: Trigger, running: Running) -> None:
    """Run a job until it is done, cannot continue, or gets SIGTERM or SIGINT.

    Raises CommandError in one line. All checks that need no Spark run before Spark starts.
    """
    session.quiet_logs()
    for path in job.paths:
        require_directory(path, job.checkpoint)
    require_apart(job.paths)
    if job.idle_timeout_ms:
        # Spark reads the ticks in it as event files.
        require_plain(job.checkpoint)
    if job.connection is not None:
        _require_answer(job.connection.servers)
    if job.schemas is not None:
        job.schemas.require()
    metrics = Metrics(job.stream)
    savepoints = Savepoints(running.savepoints, job, dsn, metrics)
    counter = BatchCounter(metrics.done)
    with (
        closing(_sink(job, dsn, counter, running)) as sink,
        served(metrics, running.metrics_host, running.metrics_port),
        exported_spans("holdfast-job"),
        StopSignals() as signals,
    ):
        if not launched_by_spark_submit():
            with _starting(signals.requested):
                require_java()
        jvm_stop = JvmStop(signals.request)

        def on_start(spark: SparkSession) -> None:
            signals.install()
            jvm_stop.install(spark)

        name = f"holdfast {job.stream}"
        engine = Engine(name, running.state_memory_mb, running.launch, on_start)
        started = Event()

        def once() -> None:
            metrics.enter(State.STARTING)
            with _starting(signals.requested):
                spark = engine.spark()
            if not signals.requested.is_set():
                with savepoints.written(spark) as tick:
                    attempt(
                        spark,
                        job,
                        sink,
                        trigger,
                        signals.requested,
                        started=started,
                        counter=counter,
                        metrics=metrics,
                        jvm_gone=engine.jvm_gone,
                        retention=running.retention,
                        tick=tick,
                    )

        try:
            supervise(
                once,
                stop=signals.requested,
                max_restarts=running.max_restarts,
                on_restart=lambda failure: metrics.restarting(failure.cause),
            )
            if trigger.available_now and not counter.finished and not signals.requested.is_set():
                print("holdfast: nothing new to read", file=sys.stderr, flush=True)  # noqa: T201
        finally:
            engine.stop()
            jvm_stop.release()


def _report_skipped(path: str) -> None:
    names = skipped(path)
    if names:
        said = f"holdfast: {describe_skipped(path, names)}"
        print(said, file=sys.stderr, flush=True)  # noqa: T201 - the command's own report


def _require_answer(servers: str) -> None:
    """Raise CommandError where no broker answers: at a start, a person waits for the words."""
    try:
        require_server(servers)
    except KafkaFault as error:
        raise CommandError(f"{error} Nothing was started.", code="policy_change_refused") from error


@contextmanager
def _starting(stop: Event) -> Iterator[None]:
    """While Spark starts: a stop signal that also ends the starting process is not a failure."""
    try:
        yield
    except (CommandError, QueryFailed):
        if not stop.is_set():
            raise
        print(  # noqa: T201 - the command's own report
            "stopped while Spark was starting; no batch was running", file=sys.stderr, flush=True
        )


def _sink(job: Job, dsn: str, counter: BatchCounter, running: Running) -> OutboxSink:
    try:
        sink = OutboxSink(
            dsn,
            stream=job.stream,
            checkpoint=job.checkpoint,
            select=counter.select,
            also=output.writer(job.stream),
            suppress_repeats=True,
            # No share: what the sink counts are decisions and refused lines, not all lines.
            quarantine_limit=QuarantineLimit(rows=running.refused_rows, share=1),
            doorbell=running.doorbell,
            # A decision is dated by its window's end, which no event may pass by more than this.
            future_tolerance=min(
                TOLERANCE + timedelta(microseconds=job.settings.future_tolerance_us), TOLERANCE_MAX
            ),
        )
        sink.check()
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was started.", ExitCode.USAGE, code="invalid_job"
        ) from error
    except SinkError as error:
        raise CommandError(explain(error), code="job_refused") from error
    return sink
