"""Restarts of the job, and windows that are due at one."""

import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.rows.batch import BatchInput
from holdfast.sink.transaction.database import Timeouts
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from tests.support.dispatch.sender import BLOCK
from tests.support.job.job_process import QUICK, SECONDS, family, in_the_step, kill_if
from tests.support.job.job_stream import decided, lasting
from tests.support.job.jobs import Play, busy, commits, event, forget_commit
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark_app.lifecycle.failure import Failure

FILES = 6
ROWS = 10
HASTY = Timeouts(
    connect_seconds=2,
    lock_seconds=2,
    statement_seconds=2,
    idle_seconds=10,
    transaction_seconds=10,
    deadline_seconds=0.2,
)
"""A sink that soon gives up on a database that is away."""

_BATCH = re.compile(r"^batch=(\d+) .* rows=(\d+) ", re.MULTILINE)


def _put_all(play: Play) -> None:
    """Files of twelve minutes: holds come and go, and each batch but the first emits windows."""
    play.put(*(busy(number, number * 12, ROWS) for number in range(FILES)))


def _all_read(message: str) -> bool:
    """Whether all files were read, and the batch without rows came that closes the last windows."""
    rows = {int(batch): int(count) for batch, count in _BATCH.findall(message)}
    return sum(rows.values()) == FILES * ROWS and rows[max(rows)] == 0


def _check_as_in_peace(play: Play, attacked: str) -> None:
    """Compare what an attacked job wrote, though perhaps in other batches, with a run in peace.

    A JVM that dies while it plans a batch makes Spark take two files for the next.
    """
    play.checkpoint.rename(play.folder / "checkpoint of the attacked")
    play.run()
    contents = lasting(play.dsn, "entries", "windows")
    assert lasting(attacked, "entries", "windows") == contents
    assert len(contents["entries"]) > FILES


@pytest.mark.rest
@pytest.mark.timeout(900)
def test_a_job_survives_its_workers_and_its_java(
    play: Play, make_database: Callable[[str | None], str], template_database: str
) -> None:
    _put_all(play)
    attacked = make_database(template_database)
    with family(play.folder, attacked, *QUICK, log="attacked.txt", environment={}) as job:

        def restarts() -> int:
            return job.said.count("restart=1 in=")

        def until(condition: Callable[[], object]) -> None:
            eventually(lambda: condition() or job.ended, SECONDS)
            assert not job.ended, job.said

        def kill_java() -> None:
            jvm = job.jvm()
            assert jvm
            jvm.send_signal(signal.SIGKILL)

        until(lambda: any(kill_if(worker, in_the_step) for worker in job.workers()))
        until(lambda: restarts() == 1)
        until(lambda: "batch=2 " in job.said)
        kill_java()
        until(lambda: restarts() == 2)
        until(lambda: _all_read(job.said))
        kill_java()
        until(lambda: restarts() == 3)
        # During the pause, while nothing runs.
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(SECONDS) == 0, job.said
        assert "Traceback" not in job.said
    reasons = [line for line in job.said.splitlines() if line.startswith("restart=")]
    assert "a Python process of Spark has died" in reasons[0]
    assert all("Java process has died" in reason for reason in reasons[1:])
    _check_as_in_peace(play, attacked)


class _Door:
    """Lets the sinks of a database in, or cuts their connections and lets nobody in."""

    def __init__(self, server: psycopg.Connection, dsn: str) -> None:
        self._server = server
        self._name = str(conninfo_to_dict(dsn)["dbname"])

    def open(self) -> None:
        self._allow(True)

    def close(self) -> None:
        self._allow(False)
        self._server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = %s AND application_name LIKE 'holdfast sink%%'",
            [self._name],
        )

    def _allow(self, allowed: bool) -> None:
        change = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
        self._server.execute(change.format(sql.Identifier(self._name), allowed))


@pytest.mark.rest
def test_a_job_survives_a_database_that_is_away(
    play: Play, server_dsn: str, make_database: Callable[[str | None], str], template_database: str
) -> None:
    from holdfast.spark_app.operator import output

    _put_all(play)
    cut_off = make_database(template_database)
    batches: list[pa.Table] = []
    failures: list[Failure] = []
    with psycopg.connect(server_dsn, autocommit=True) as server:
        door = _Door(server, cut_off)

        def select(blobs: pa.Table) -> BatchInput:
            batches.append(blobs)
            if len(batches) == 3:
                door.close()
            return output.select(blobs)

        def on_restart(failure: "Failure") -> None:
            failures.append(failure)
            # Away for the batch, and for the start of the run after it.
            if len(failures) == 2:
                door.open()

        try:
            replace(play, dsn=cut_off).supervised(on_restart, select=select, timeouts=HASTY)
        finally:
            door.open()
    assert [failure.cause for failure in failures] == ["database", "database"]
    assert all(failure.said.startswith("SinkUnavailable: ") for failure in failures)
    assert len(batches) == FILES + 2
    _check_as_in_peace(play, cut_off)


@pytest.mark.guarantee(2)
def test_a_replay_that_differs_ends_the_job_at_once(
    play: Play, db: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    play.put([event("e1", "12:01", 6_000_000)], [event("e2", "12:20", 1)])
    play.supervised()
    forget_commit(play.checkpoint, 2)
    db.execute("UPDATE holdfast.batch SET digest = sha256('other') WHERE batch_id = 2")
    with pytest.raises(CommandError) as raised:
        play.supervised()
    assert str(raised.value).startswith("ReplayDiverged: ")
    assert "restart=" not in capsys.readouterr().err


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
