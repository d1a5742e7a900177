"""Each alert of the job is fired by a real fault, in a real Prometheus.

Real: Spark, Postgres, Prometheus. The rules are those of deploy/prometheus/holdfast.yml without
their `for`, and with the limits of `tests.support.monitoring.rules.SOONER`.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.job.job_process import QUICK, JobProcess, job_process
from tests.support.job.jobs import event, put
from tests.support.monitoring.prometheus import MISSING, Watch, Watcher, program
from tests.support.processes import java_below

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.skipif(program("prometheus") is None, reason=MISSING.format("prometheus")),
]

STANDS, GOES = 2.0, 0.1
"""Seconds for which a slow JVM stands still and continues, in turns."""

KILLS = 4
"""More than the alert allows."""


class Source:
    """Files that arrive, each a minute of events after the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def put(self, *more: bytes, events: int = 1) -> None:
        """Put a file with `events` events of as many merchants, and `more` lines."""
        number = next(self._numbers)
        clock = f"{12 + number // 60}:{number % 60:02}"
        rows = [event(f"e{number}-{n}", clock, 1, f"m_{number}_{n}") for n in range(events)]
        put(self._folder, number, [*rows, *more])


@contextmanager
def arriving(source: Source, events: int = 1) -> Iterator[None]:
    """Put a file every half second until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.5):
            source.put(events=events)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def slow(job: JobProcess) -> Iterator[None]:
    """Let the job's JVM stand still most of the time, as on a machine that has too much to do."""
    (java,) = java_below(job.process.pid)
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(GOES):
            java.suspend()
            ended.wait(STANDS)
            java.resume()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Running:
    """A job, its files, and a Prometheus that has seen its counters and its first batch."""

    job: JobProcess
    source: Source
    seen: Watch


@pytest.fixture
def running(dsn: str, tmp_path: Path, watch: Watcher, address: str) -> Iterator[Running]:
    source = Source(tmp_path / "events")
    port = address.partition(":")[2]
    with job_process(tmp_path, dsn, *QUICK, "--metrics-port", port) as job:
        seen = watch(address)
        source.put()
        seen.sees("holdfast_job_quarantined_rows_total")
        seen.sees("holdfast_job_last_batch_timestamp_seconds > 0")
        yield Running(job, source, seen)


def test_alerts_about_rows_are_fired_by_what_a_file_has(running: Running) -> None:
    source, seen = running.source, running.seen
    seen.fires("HoldfastJobBehind", stream="payouts")
    seen.none_fires("HoldfastRowsQuarantined", "HoldfastSourceClockAhead")
    future = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    source.put(event("ahead", "0:00", 1, occurred_at=future), b'{"event_id": "unreadable"}')
    seen.fires("HoldfastRowsQuarantined", stream="payouts")
    seen.fires("HoldfastSourceClockAhead", stream="payouts")
    seen.fires("HoldfastJobStuck", stream="payouts")


def test_growing_state_and_a_slow_machine_fire_checkpoint_alerts(running: Running) -> None:
    seen = running.seen
    seen.none_fires("HoldfastStateGrowing", "HoldfastCheckpointSlow")
    with arriving(running.source, events=200):
        seen.fires("HoldfastStateGrowing", stream="payouts")
        seen.is_quiet("HoldfastCheckpointSlow")
        with slow(running.job):
            seen.fires("HoldfastCheckpointSlow", stream="payouts")


def test_repeated_jvm_kills_fire_the_alert_of_restarts(running: Running) -> None:
    job, seen = running.job, running.seen
    seen.none_fires("HoldfastJobRestarts")
    for number in range(1, KILLS + 1):
        (java,) = java_below(job.process.pid)
        java.kill()
        seen.sees(f'holdfast_job_restarts_total{{cause="java"}} >= {number}')
        seen.sees('holdfast_job_state{state="running"} == 1')
    seen.fires("HoldfastJobRestarts", stream="payouts")
    assert job.process.poll() is None, job.said
