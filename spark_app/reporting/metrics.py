"""The job's Prometheus metrics. docs/reference/metrics.md describes each; a test compares."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryProgress

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import LateReason, QuarantineReason
from holdfast.sink.rows.outcome import Replayed, Written
from holdfast.spark_app.lifecycle.failure import Cause
from holdfast.spark_app.reporting.batch_counts import LATE_REASONS, FinishedBatch
from holdfast.spark_app.reporting.query_progress import (
    ahead_seconds,
    checkpoint_phases,
    dropped_rows,
    event_rows,
    started_at,
    tick_rows,
    watermark,
)

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""A batch without rows takes a few tenths of a second; 300 s is far beyond normal."""


BY_SINK = "decision"
"""The reason of a decision that the sink refused; a correct job makes none."""


class State(StrEnum):
    """The state of the job."""

    STARTING = "starting"
    """Spark, or the query, is starting."""
    RUNNING = "running"
    """The query runs."""
    WAITING = "waiting"
    """It failed, and restarts after a pause."""


class Metrics:
    """The metrics of one job, in a registry of their own. Safe for several threads."""

    def __init__(self, stream: str = "") -> None:
        self.registry = CollectorRegistry()
        self._stream = stream
        self._make_counts()
        self._make_gauges()
        self._begin_at_zero()
        self.enter(State.STARTING)

    def _make_counts(self) -> None:
        self._batches = self._counter("batches", "Batches written or replayed", "outcome")
        self._rows = self._counter("rows", "Rows read, of batches that Spark recorded")
        self._ticks = self._counter(
            "idle_ticks", "Ticks of the idle clock, of batches that Spark recorded"
        )
        self._entries = self._counter("entries", "Decisions written to the outbox")
        self._suppressed = self._counter(
            "suppressed", "Decisions suppressed as repeated or overtaken"
        )
        self._duplicates = self._counter(
            "duplicate_keys", "Decisions whose business key was already known"
        )
        self._quarantined = self._counter("quarantined_rows", "Rows that were refused", "reason")
        self._late = self._counter("late_rows", "Events that were not applied", "reason")
        self._late_ahead = self._counter(
            "late_ahead_rows", "Events that were late because the watermark was ahead of the clock"
        )
        self._windows = self._counter("windows", "Windows emitted, corrections included")
        self._restarts = self._counter("restarts", "Restarts after a failure", "cause")
        self._not_saved = self._counter("savepoint_failures", "Savepoints that were not written")

    def _make_gauges(self) -> None:
        self._state = self._gauge("state", "1 for the current state of the job", "state")
        self._watermark = self._gauge(
            "watermark_timestamp_seconds", "Watermark of the latest batch"
        )
        self._lag = self._gauge(
            "watermark_lag_seconds", "Start of the latest batch minus its watermark"
        )
        self._ahead = self._gauge(
            "watermark_ahead_seconds", "Watermark of the latest batch minus its start, at least 0"
        )
        self._last = self._gauge("last_batch_timestamp_seconds", "Start of the latest batch")
        self._bytes = self._gauge("state_memory_bytes", "Memory that RocksDB holds for the state")
        self._files = self._gauge("state_file_bytes", "Size of RocksDB's own files of the state")
        self._saved = self._gauge(
            "savepoint_timestamp_seconds", "Time of the newest savepoint of --savepoint-every"
        )
        self._dropped = self._gauge("spark_dropped_rows", "Rows that Spark dropped; must stay 0")
        self._duration = self._histogram("batch_duration_seconds", "Time of a batch, by phase")
        self._checkpoint = self._histogram(
            "checkpoint_duration_seconds", "Time of a batch's checkpoint, by phase"
        )
        self._committed = time.monotonic()
        age = self._gauge("last_commit_age_seconds", "Age of the newest committed batch")
        age.labels(self._stream).set_function(lambda: time.monotonic() - self._committed)

    def _begin_at_zero(self) -> None:
        """Export every counter from the start: Prometheus sees no increase in a new series."""
        for counter in (
            *(self._rows, self._ticks, self._entries),
            *(self._suppressed, self._duplicates, self._windows, self._late_ahead),
            self._not_saved,
        ):
            counter.labels(self._stream)
        for counter, values in (
            (self._batches, [kind.__name__.lower() for kind in (Written, Replayed)]),
            (self._quarantined, list(QuarantineReason)),
            (self._late, LATE_REASONS),
            (self._restarts, list(Cause)),
        ):
            for value in values:
                counter.labels(self._stream, str(value))

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"holdfast_job_{name}", help_, ["stream", *labels], registry=self.registry)

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(f"holdfast_job_{name}", help_, ["stream", *labels], registry=self.registry)

    def _histogram(self, name: str, help_: str) -> Histogram:
        return Histogram(
            f"holdfast_job_{name}",
            help_,
            ["stream", "phase"],
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def enter(self, state: State) -> None:
        """Set the state of the job."""
        for each in State:
            self._state.labels(self._stream, each.value).set(each is state)

    def restarting(self, cause: Cause) -> None:
        """Count a restart; the job waits for it."""
        self._restarts.labels(self._stream, cause.value).inc()
        self.enter(State.WAITING)

    def saved(self, at: float) -> None:
        """Record the newest savepoint, in seconds since 1970."""
        self._saved.labels(self._stream).set(at)

    def not_saved(self) -> None:
        """Count a savepoint that was not written."""
        self._not_saved.labels(self._stream).inc()

    def done(self, done: FinishedBatch) -> None:
        """Count a batch that the sink has; its contents only when this run wrote it."""
        outcome, counts = done.outcome, done.counts
        self._batches.labels(self._stream, type(outcome).__name__.lower()).inc()
        if not isinstance(outcome, Written):
            return
        self._entries.labels(self._stream).inc(outcome.counts.entries)
        self._suppressed.labels(self._stream).inc(outcome.counts.suppressed)
        self._duplicates.labels(self._stream).inc(outcome.counts.duplicates)
        self._windows.labels(self._stream).inc(counts.windows)
        self._by_reason(self._late, counts.late)
        self._by_reason(self._quarantined, counts.quarantined)
        by_sink = outcome.counts.quarantined - counts.quarantined.total()
        self._by_reason(self._quarantined, {BY_SINK: by_sink} if by_sink else {})

    def _by_reason(self, counter: Counter, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            counter.labels(self._stream, reason).inc(count)

    def late_ahead(self, done: FinishedBatch) -> None:
        """Count the late events of a batch whose watermark was ahead of the clock."""
        if isinstance(done.outcome, Written):
            self._late_ahead.labels(self._stream).inc(done.counts.late[LateReason.LATE])

    def recorded(self, progress: StreamingQueryProgress) -> None:
        """Record Spark's progress report of a batch that it has recorded."""
        self._rows.labels(self._stream).inc(event_rows(progress))
        self._ticks.labels(self._stream).inc(tick_rows(progress))
        started = started_at(progress)
        self._last.labels(self._stream).set(started.timestamp())
        reached = watermark(progress)
        if reached is not None:
            self._watermark.labels(self._stream).set(reached.timestamp())
            self._lag.labels(self._stream).set((started - reached).total_seconds())
        self._ahead.labels(self._stream).set(ahead_seconds(progress))
        for phase, milliseconds in progress.durationMs.items():
            self._duration.labels(self._stream, phase).observe(milliseconds / 1000)
        for phase, seconds in checkpoint_phases(progress).items():
            self._checkpoint.labels(self._stream, phase).observe(seconds)
        self._committed = time.monotonic()
        operators = progress.stateOperators
        self._bytes.labels(self._stream).set(sum(each.memoryUsedBytes for each in operators))
        self._files.labels(self._stream).set(
            sum(each.customMetrics.get("rocksdbSstFileSize", 0) for each in operators)
        )
        self._dropped.labels(self._stream).set(dropped_rows(progress))


@contextmanager
def served(metrics: Metrics, host: str, port: int) -> Iterator[None]:
    """Serve the metrics over HTTP while the block runs; port 0 disables it.

    Raises CommandError when the address is not available.
    """
    if not port:
        yield
        return
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise CommandError(
            f"the metrics cannot be served on {host}:{port}: {error.strerror or error}. Nothing was"
            " started; name a free port with --metrics-port, or an address of this machine with"
            " --metrics-host.",
            ExitCode.USAGE,
            code="port_in_use",
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
