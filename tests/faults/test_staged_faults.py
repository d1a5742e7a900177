"""The staged path dies, or loses its line or its server, at each of its points.

Real: the process, SIGKILL, Postgres, its backends, its postmaster, a proxy in between. Doubled:
Spark, by a program that calls the function of its tasks and keeps a checkpoint in the same order.
Asserted: the rows of every table of the sink, compared with what the *driver path* leaves of the
same rows when nothing happens to it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGKILL
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import holdfast.sink.transaction.staging.content
import holdfast.sink.transaction.write_batch
import holdfast.sink.transaction.writer
from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.migrations.upgrade import upgrade
from holdfast.sink import Written
from holdfast.sink.contract.failpoints import ENVIRONMENT
from holdfast.sink.foreach_batch import Identity
from holdfast.sink.transaction.staging.stage import Stage, StageLost
from holdfast.sink.transaction.staging.task import Summary
from tests.support.dispatch.entries import table
from tests.support.job.driver import Driver, in_tasks
from tests.support.job.outbox import contents
from tests.support.job.sink_program import BATCHES, drive, rows
from tests.support.servers.embedded import server_directory
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.waiting import eventually

pytestmark = pytest.mark.faults

QUERY_ID = UUID("5f3a1c58-6f0e-4c7e-9d5b-0b5a7d2f6c11")
POINTS = ["T1/0/0", "T2/2/0", *(f"S{n}" for n in range(1, 10))]
COMMITTED = {"S8", "S9"}
"""The points that lie behind the COMMIT: the batch comes again and is found written."""

MakeDatabase = Callable[[str | None], str]
Outcome = dict[str, list[tuple[object, ...]]]


def _outcome(dsn: str) -> Outcome:
    with psycopg.connect(dsn, autocommit=True) as db:
        found = contents(db)
        found["stage"] = db.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^stage_[0-9]+$'"
        ).fetchall()
    return found


_undisturbed: list[Outcome] = []


@pytest.fixture
def undisturbed(make_database: MakeDatabase, template_database: str) -> Outcome:
    """What the driver path leaves of the program's rows; found out once for all tests."""
    if not _undisturbed:
        dsn = make_database(template_database)
        spark = Driver(dsn, query_id=QUERY_ID)
        for batch_id in range(BATCHES):
            spark.batch(batch_id, *rows(batch_id))
        spark.sink.close()
        _undisturbed.append(_outcome(dsn))
    return _undisturbed[0]


def _struck(monkeypatch: pytest.MonkeyPatch, point: str, strike: Callable[[], None]) -> None:
    """Call `strike` when the second batch passes `point`."""
    passed = 0

    def pass_point(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == 2:
            strike()

    for module in (
        holdfast.sink.transaction.staging.content,
        holdfast.sink.transaction.write_batch,
        holdfast.sink.transaction.writer,
    ):
        monkeypatch.setattr(module, "failpoint", pass_point)


def _kill_at(point: str, dsn: str, folder: Path, path: str) -> None:
    """Run the program until it is killed when its second batch passes `point`."""
    killed = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.job.sink_program"),
            *(dsn, str(folder), str(QUERY_ID), path),
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, ENVIRONMENT: f"{point}=kill@2"},
    )
    assert killed.wait(timeout=120) == -SIGKILL


@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_at_a_point_leaves_what_an_undisturbed_run_leaves(
    dsn: str, undisturbed: Outcome, tmp_path: Path, point: str
) -> None:
    _kill_at(point, dsn, tmp_path, "staged")
    outcomes = drive(dsn, tmp_path, QUERY_ID, staged=True)
    assert outcomes == ["Replayed" if point in COMMITTED else "Written", "Written"]
    assert _outcome(dsn) == undisturbed


@pytest.mark.parametrize("point", ["S4", "S8"])
@pytest.mark.parametrize("staged", [True, False])
def test_batch_that_was_begun_on_one_path_is_finished_on_the_other(
    dsn: str, undisturbed: Outcome, tmp_path: Path, point: str, *, staged: bool
) -> None:
    _kill_at(point, dsn, tmp_path, "staged" if staged else "plain")
    outcomes = drive(dsn, tmp_path, QUERY_ID, staged=not staged, plain=True)
    assert outcomes == ["Replayed" if point in COMMITTED else "Written", "Written"]
    assert _outcome(dsn) == undisturbed


@pytest.mark.parametrize("point", ["S2", "S3", "S4", "S5", "S6", "S7"])
def test_backend_killed_at_a_point_costs_one_more_attempt(
    dsn: str,
    undisturbed: Outcome,
    db: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    struck = []

    def strike() -> None:
        found = db.execute(
            "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast sink payouts' AND datname = current_database()"
        ).fetchone()
        struck.append(found)

    _struck(monkeypatch, point, strike)
    assert drive(dsn, tmp_path, QUERY_ID, staged=True) == ["Written"] * BATCHES
    assert struck == [(1,)]
    assert _outcome(dsn) == undisturbed


@pytest.mark.parametrize("fault", [Fault.COMMIT_LOST, Fault.ANSWER_LOST])
def test_commit_without_an_answer_is_settled_by_the_ledger(
    dsn: str,
    undisturbed: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    with PostgresProxy(dsn, fault, 0) as proxy:
        # The next COMMIT after the point is that of the batch.
        _struck(monkeypatch, "S7", proxy.strike)
        assert drive(proxy.dsn, tmp_path, QUERY_ID, staged=True) == ["Written"] * BATCHES
        assert proxy.struck.is_set()
    assert _outcome(dsn) == undisturbed


class Server:
    """A server of its own, whose address stays when it is killed and started again."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._line = server.directory.parent / "line"
        self._point()
        self.dsn = make_conninfo(server.dsn, host=str(self._line))

    def crash(self) -> None:
        """kill -9 of the postmaster, and a start that recovers what was committed."""
        running = self._server.running
        assert running
        running.process.kill()
        eventually(lambda: not self._server.running)
        assert self._server.start() is True
        self._point()

    def _point(self) -> None:
        running = self._server.running
        assert running
        assert running.socket_folder
        self._line.unlink(missing_ok=True)
        self._line.symlink_to(running.socket_folder)


@pytest.fixture
def server() -> Iterator[Server]:
    with server_directory() as directory, EmbeddedPostgres(directory) as started:
        upgrade(started.dsn)
        yield Server(started)


def test_server_that_crashed_behind_the_tasks_costs_a_replay_and_nothing_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark = Driver(server.dsn, query_id=QUERY_ID, staged=True)
    spark.batch(0, *rows(0))
    batch = table(*rows(1))
    identity = Identity(QUERY_ID, spark.run_id, 1)

    def crash_after(stage: Stage) -> list[Summary]:
        summaries = in_tasks(batch)(stage)
        server.crash()
        return summaries

    words = r"0 of 10 rows are.*This run did not write the batch.*replays it"
    with pytest.raises(StageLost, match=words):
        spark.sink.apply_staged(batch.schema, crash_after, identity)

    # Now inside the transaction: its second attempt finds the server again, and the stage empty.
    crashes = iter([server.crash])
    with monkeypatch.context() as patch:
        patch.setattr(
            holdfast.sink.transaction.writer,
            "failpoint",
            lambda name: name == "S2" and next(crashes, lambda: None)(),
        )
        with pytest.raises(StageLost, match=words):
            spark.sink.apply_staged(batch.schema, in_tasks(batch), identity)
    assert "trying again" in caplog.text

    assert isinstance(spark.batch(1, *rows(1)), Written)
    spark.sink.close()
    with psycopg.connect(server.dsn, autocommit=True) as db:
        assert [found[2] for found in contents(db)["batch"]] == [0, 1]
        assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)
