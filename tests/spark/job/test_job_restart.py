"""A job that fails goes on by itself, and what it wrote is what a run in peace writes."""

import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from tenacity import wait_none

from holdfast.sink import OutboxSink
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.rows.batch import BatchInput
from holdfast.sink.transaction.database import Timeouts
from tests.support.job.job_family import family, in_the_step, kill_if
from tests.support.job.job_process import QUICK, SECONDS
from tests.support.job.jobs import Play, event, put
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark_app.lifecycle.failure import Failure

pytestmark = pytest.mark.spark

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

Rows = list[tuple[Any, ...]]


@pytest.fixture
def play(spark: "SparkSession", dsn: str, tmp_path: Path) -> Play:
    return Play(spark, dsn, tmp_path)


def _put_all(folder: Path) -> None:
    """Files of twelve minutes: holds come and go, and each batch but the first emits windows."""
    for number in range(FILES):
        clock = f"{12 + number * 12 // 60}:{number * 12 % 60:02}"
        amount = [3_000_000, -2_000_000][number % 3 == 2]
        rows = [event(f"e{number}-{i}", clock, amount, f"m_{i % 5}") for i in range(ROWS)]
        put(folder / "events", number, rows)


def _all_read(said: str) -> bool:
    """Whether all files were read, and the batch without rows came that closes the last windows."""
    rows = {int(batch): int(count) for batch, count in _BATCH.findall(said)}
    return sum(rows.values()) == FILES * ROWS and rows[max(rows)] == 0


def _left(dsn: str) -> tuple[Rows, Rows]:
    """The decisions and the windows that the job wrote.

    Not by batch: a JVM that dies while it plans a batch makes Spark take two files for the next.
    """
    with psycopg.connect(dsn) as db:
        decisions = db.execute(
            "SELECT name, sequence, type, occurred_at, key,"
            " convert_from(body, 'UTF8')::jsonb -> 'data' FROM holdfast.entry"
            " JOIN holdfast.subject ON subject.id = entry.subject_id ORDER BY 1, 2"
        ).fetchall()
        windows = db.execute(
            "SELECT merchant_id, window_end, revision, exposure_minor"
            " FROM holdfast.exposure_window ORDER BY 1, 2"
        ).fetchall()
    assert len(decisions) > FILES
    return decisions, windows


def _supervised(
    play: Play, sink: OutboxSink, on_restart: "Callable[[Failure], object]" = lambda _: None
) -> None:
    """Run the job as the command does, without its pauses, in the session of the tests."""
    from holdfast.spark_app.lifecycle.attempt import Trigger, attempt
    from holdfast.spark_app.lifecycle.supervisor import supervise
    from holdfast.spark_app.runtime import session

    spark = session.fix(play.spark.newSession())
    supervise(
        lambda: attempt(spark, play.job(), sink, Trigger(available_now=True), Event()),
        stop=Event(),
        pause=wait_none(),
        on_restart=on_restart,
    )


@pytest.mark.timeout(900)
def test_a_job_survives_its_workers_and_its_java(
    play: Play, dsn: str, make_database: Callable[[str | None], str], template_database: str
) -> None:
    _put_all(play.folder)
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
        job.driver.send_signal(signal.SIGTERM)
        assert job.driver.wait(SECONDS) == 0, job.said
        assert "Traceback" not in job.said
    reasons = [line for line in job.said.splitlines() if line.startswith("restart=")]
    assert "a Python process of Spark has died" in reasons[0]
    assert all("Java process has died" in reason for reason in reasons[1:])
    (play.folder / "checkpoint").rename(play.folder / "checkpoint of the attacked")
    play.run()
    assert _left(attacked) == _left(dsn)


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


def test_a_job_survives_a_database_that_is_away(
    play: Play,
    dsn: str,
    server_dsn: str,
    make_database: Callable[[str | None], str],
    template_database: str,
) -> None:
    from holdfast.spark_app.operator import companions, output

    _put_all(play.folder)
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

        sink = OutboxSink(
            cut_off,
            stream="payouts",
            checkpoint=str(play.folder / "checkpoint"),
            select=select,
            also=companions.writer("payouts"),
            suppress_repeats=True,
            timeouts=HASTY,
        )
        try:
            with closing(sink):
                _supervised(play, sink, on_restart)
        finally:
            door.open()
    assert [failure.cause for failure in failures] == ["database", "database"]
    assert all(failure.said.startswith("SinkUnavailable: ") for failure in failures)
    assert len(batches) == FILES + 2
    (play.folder / "checkpoint").rename(play.folder / "checkpoint of the other")
    play.run()
    assert _left(cut_off) == _left(dsn)


@pytest.mark.guarantee(2)
def test_a_replay_that_differs_ends_the_job_at_once(
    play: Play, db: psycopg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    put(play.folder / "events", 0, [event("e1", "12:01", 6_000_000)])
    put(play.folder / "events", 1, [event("e2", "12:20", 1)])
    commits = play.folder / "checkpoint" / "commits"
    with closing(play.sink(play.job())) as sink:
        _supervised(play, sink)
        for name in ("2", ".2.crc"):
            (commits / name).unlink()
        db.execute("UPDATE holdfast.batch SET digest = sha256('other') WHERE batch_id = 2")
        with pytest.raises(CommandError) as raised:
            _supervised(play, sink)
    assert str(raised.value).startswith("ReplayDiverged: ")
    assert "restart=" not in capsys.readouterr().err
