"""A window that the watermark has passed is decided by the next start, without another event.

Spark runs a batch without rows after one that has moved the watermark. Here the job ends between
the two.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from tests.support.dispatch.sender import BLOCK
from tests.support.job.job_outcome import decided
from tests.support.job.jobs import Play, commits, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [event("e1", "08:05", 8_500_000), event("e2", "08:16", 1, "m_2")]
SLOW = 24 * 60 * 60 * 1000
"""An interval in which the job ends before the batch without rows."""


def _entries(db: psycopg.Connection) -> list[str]:
    return [type_ for _, type_, _ in decided(db)]


def test_window_due_at_a_stop_is_decided_by_a_running_job(
    play: Play, db: psycopg.Connection
) -> None:
    play.put(LINES)
    play.run_until(lambda: commits(play.checkpoint) == [0], SLOW)
    assert _entries(db) == []
    play.run_until(lambda: _entries(db), 100)
    assert (_entries(db), commits(play.checkpoint)) == ([BLOCK], [0, 1])


@pytest.mark.rest
def test_window_due_after_a_restore_is_decided_by_the_next_start(
    play: Play, db: psycopg.Connection
) -> None:
    play.put([event("e0", "08:01", 1, "m_2")])
    play.command()
    before = commits(play.checkpoint)[-1]
    play.put(LINES, first=1)
    play.run_until(lambda: commits(play.checkpoint)[-1] > before, SLOW)
    restored(Folder(str(play.checkpoint)), before, play.dsn, dry_run=False)
    assert _entries(db) == []
    play.command()
    assert (_entries(db), commits(play.checkpoint)[-1]) == ([BLOCK], before + 2)


@pytest.mark.rest
def test_data_that_waits_is_read_before_the_window_is_decided(
    play: Play, db: psycopg.Connection
) -> None:
    """An uninterrupted job reads them in one batch, and decides by both."""
    play.put(LINES)
    play.run_until(lambda: commits(play.checkpoint) == [0], SLOW)
    play.put([event("e3", "08:06", -8_000_000)], first=1)
    play.run_until(lambda: len(commits(play.checkpoint)) > 1, 100)
    windows = db.execute("SELECT revision, exposure_minor FROM holdfast.exposure_window")
    assert (_entries(db), windows.fetchall()) == ([], [(1, 500_000)])


def test_plan_of_another_driver_is_not_overwritten(spark: "SparkSession", tmp_path: Path) -> None:
    files = CheckpointFiles(spark, str(tmp_path))
    files.make_folder("offsets")
    files.create("offsets/1", "theirs")
    with pytest.raises(FileExistsError):
        files.create("offsets/1", "ours")
    assert (files.read("offsets/1"), files.names("offsets")) == ("theirs", ["1"])


@pytest.mark.rest
def test_window_due_at_a_stop_is_decided_by_an_available_now_start(
    play: Play, db: psycopg.Connection
) -> None:
    play.put(LINES)
    play.run_until(lambda: commits(play.checkpoint) == [0], SLOW)
    assert _entries(db) == []
    play.command()
    assert (_entries(db), commits(play.checkpoint)) == ([BLOCK], [0, 1])
    # It was planned once: the next start has nothing to do, and new files are read.
    play.command()
    assert commits(play.checkpoint) == [0, 1]
    play.put([event("e3", "08:10", 1, "m_2")], first=1)
    play.command()
    assert (_entries(db), commits(play.checkpoint)) == ([BLOCK], [0, 1, 2])
