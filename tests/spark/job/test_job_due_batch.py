"""A window that the watermark has passed is decided by the next start, without another event.

Spark runs a batch without rows after one that has moved the watermark. Here the job ends between
the two.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from tests.support.dispatch.entries import BLOCK
from tests.support.job.job_process import job_process
from tests.support.job.jobs import Play, event, put
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LINES = [event("e1", "08:05", 8_500_000), event("e2", "08:16", 1, "m_2")]
SLOW = 24 * 60 * 60 * 1000
"""An interval in which the job ends before the batch without rows."""


@pytest.fixture
def play(spark: "SparkSession", dsn: str, tmp_path: Path) -> Play:
    return Play(spark, dsn, tmp_path)


def _run_until(play: Play, met: Callable[[], object], interval_ms: int) -> None:
    """Run the job without an end, and stop it when a condition is met, as SIGTERM does."""
    from holdfast.spark_app.lifecycle.attempt import Trigger, attempt
    from holdfast.spark_app.runtime import session

    job, stop = play.job(), Event()
    spark = session.fix(play.spark.newSession())
    with ThreadPoolExecutor(1) as pool, closing(play.sink(job)) as sink:
        ends = Trigger(interval_ms=interval_ms)
        running = pool.submit(attempt, spark, job, sink, ends, stop)
        try:
            eventually(lambda: met() or running.done(), 240)
        finally:
            stop.set()
        running.result(240)
    assert met()


def _committed(folder: Path) -> list[int]:
    return sorted(int(each.name) for each in (folder / "checkpoint/commits").glob("[0-9]*"))


def _entries(db: psycopg.Connection) -> list[str]:
    return [each for (each,) in db.execute("SELECT type FROM holdfast.entry")]


def test_window_due_at_a_stop_is_decided_by_a_running_job(
    play: Play, db: psycopg.Connection
) -> None:
    put(play.folder / "events", 0, LINES)
    _run_until(play, lambda: _committed(play.folder) == [0], SLOW)
    assert _entries(db) == []
    _run_until(play, lambda: _entries(db), 100)
    assert (_entries(db), _committed(play.folder)) == ([BLOCK], [0, 1])


def test_window_due_after_a_restore_is_decided_by_the_next_start(
    play: Play, db: psycopg.Connection
) -> None:
    put(play.folder / "events", 0, [event("e0", "08:01", 1, "m_2")])
    play.command()
    before = _committed(play.folder)[-1]
    put(play.folder / "events", 1, LINES)
    _run_until(play, lambda: _committed(play.folder)[-1] > before, SLOW)
    restored(Folder(str(play.folder / "checkpoint")), before, play.dsn, dry_run=False)
    assert _entries(db) == []
    play.command()
    assert (_entries(db), _committed(play.folder)[-1]) == ([BLOCK], before + 2)


def test_data_that_waits_is_read_before_the_window_is_decided(
    play: Play, db: psycopg.Connection
) -> None:
    """An uninterrupted job reads them in one batch, and decides by both."""
    put(play.folder / "events", 0, LINES)
    _run_until(play, lambda: _committed(play.folder) == [0], SLOW)
    put(play.folder / "events", 1, [event("e3", "08:06", -8_000_000)])
    _run_until(play, lambda: len(_committed(play.folder)) > 1, 100)
    windows = db.execute("SELECT revision, exposure_minor FROM holdfast.exposure_window")
    assert (_entries(db), windows.fetchall()) == ([], [(1, 500_000)])


def test_plan_of_another_driver_is_not_overwritten(spark: "SparkSession", tmp_path: Path) -> None:
    files = CheckpointFiles(spark, str(tmp_path))
    files.make_folder("offsets")
    files.create("offsets/1", "theirs")
    with pytest.raises(FileExistsError):
        files.create("offsets/1", "ours")
    assert (files.read("offsets/1"), files.names("offsets")) == ("theirs", ["1"])


@pytest.mark.timeout(900)
def test_window_due_at_a_kill_is_decided_by_an_available_now_start(
    play: Play, dsn: str, db: psycopg.Connection
) -> None:
    put(play.folder / "events", 0, LINES)
    options = ("--key-groups", "4", "--trigger-interval", f"{SLOW}ms")
    with job_process(play.folder, dsn, *options) as job:
        job.until(lambda: _committed(play.folder) == [0])
        job.kill()
        assert job.wait() != ExitCode.OK
    assert _entries(db) == []
    play.command()
    assert (_entries(db), _committed(play.folder)) == ([BLOCK], [0, 1])
    # It was planned once: the next start has nothing to do, and new files are read.
    play.command()
    assert _committed(play.folder) == [0, 1]
    put(play.folder / "events", 1, [event("e3", "08:10", 1, "m_2")])
    play.command()
    assert (_entries(db), _committed(play.folder)) == ([BLOCK], [0, 1, 2])
