"""The sink dies, or loses its line, at each of its points; afterwards nothing is lost or doubled.

Real: the process, SIGKILL, Postgres, its backends, a proxy in between. Doubled: Spark, by a program
that keeps a checkpoint in the same order (offsets, sink, commits). Asserted: the rows of every
table of the sink, compared with those of a run that nothing happened to.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from uuid import UUID

import psycopg
import pytest

import holdfast.sink.transaction.driver_path
import holdfast.sink.transaction.write_batch
import holdfast.sink.transaction.writer
from holdfast.sink import Fenced, Written
from holdfast.sink.contract.failpoints import ENVIRONMENT
from holdfast.sink.errors import SinkUnavailable
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.entries import decision
from tests.support.job.driver import PATIENT, Driver
from tests.support.job.outbox import contents
from tests.support.job.sink_program import BATCHES, drive
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.waiting import eventually

pytestmark = pytest.mark.faults

QUERY_ID = UUID("5f3a1c58-6f0e-4c7e-9d5b-0b5a7d2f6c11")
POINTS = [f"S{n}" for n in range(1, 10)]
RUN_COMMIT, SECOND_BATCH_COMMIT = 3, 5
"""Of a session's COMMITs: its checks, the partitions, the run, batch 0, batch 1."""

COMMITTED = {"S8", "S9"}
"""The points that lie behind the COMMIT: the batch comes again and is found written."""

MakeDatabase = Callable[[str | None], str]
Outcome = dict[str, list[tuple[object, ...]]]


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("CREATE TABLE public.companion (rows bigint)")
        db.execute("GRANT INSERT ON public.companion TO holdfast_sink")


def _outcome(dsn: str) -> Outcome:
    with psycopg.connect(dsn, autocommit=True) as db:
        found = contents(db)
        found["companion"] = db.execute("SELECT rows FROM public.companion ORDER BY 1").fetchall()
    return found


_undisturbed: list[Outcome] = []


@pytest.fixture
def undisturbed(make_database: MakeDatabase, template_database: str, tmp_path: Path) -> Outcome:
    """What the program leaves when nothing happens to it; found out once for all tests."""
    if not _undisturbed:
        dsn = make_database(template_database)
        _prepare(dsn)
        folder = tmp_path / "undisturbed"
        folder.mkdir()
        assert drive(dsn, folder, QUERY_ID) == ["Written"] * BATCHES
        _undisturbed.append(_outcome(dsn))
    return _undisturbed[0]


def _start(dsn: str, folder: Path, failpoints: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.job.sink_program", dsn, str(folder), str(QUERY_ID)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, ENVIRONMENT: failpoints},
    )


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_at_a_point_leaves_what_an_undisturbed_run_leaves(
    dsn: str, undisturbed: Outcome, tmp_path: Path, point: str
) -> None:
    _prepare(dsn)
    killed = _start(dsn, tmp_path, f"{point}=kill@2")
    assert killed.wait(timeout=120) == -SIGKILL
    outcomes = drive(dsn, tmp_path, QUERY_ID)
    assert outcomes == ["Replayed" if point in COMMITTED else "Written", "Written"]
    assert _outcome(dsn) == undisturbed


def _at(monkeypatch: pytest.MonkeyPatch, point: str, strike: Callable[[], object]) -> None:
    """Strike when the second batch passes a point for the first time."""
    passed = 0

    def pass_by(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == 2:
            strike()

    for module in (
        holdfast.sink.transaction.driver_path,
        holdfast.sink.transaction.write_batch,
        holdfast.sink.transaction.writer,
    ):
        monkeypatch.setattr(module, "failpoint", pass_by)


@pytest.mark.parametrize("point", ["S2", "S3", "S4", "S5", "S6", "S7"])
def test_backend_killed_at_a_point_costs_one_more_attempt(
    dsn: str,
    undisturbed: Outcome,
    db: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    _prepare(dsn)
    passed = 0

    def strike(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == 2:
            found = db.execute(
                "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast sink payouts'"
                " AND datname = current_database()"
            ).fetchone()
            assert found == (1,)

    monkeypatch.setattr(holdfast.sink.transaction.driver_path, "failpoint", strike)
    monkeypatch.setattr(holdfast.sink.transaction.write_batch, "failpoint", strike)
    monkeypatch.setattr(holdfast.sink.transaction.writer, "failpoint", strike)
    assert drive(dsn, tmp_path, QUERY_ID) == ["Written"] * BATCHES
    assert passed == BATCHES + 1
    assert _outcome(dsn) == undisturbed


@pytest.mark.parametrize("fault", [Fault.COMMIT_LOST, Fault.ANSWER_LOST, Fault.SILENCE])
@pytest.mark.parametrize("number", [RUN_COMMIT, SECOND_BATCH_COMMIT])
def test_commit_without_an_answer_is_settled_by_the_ledger(
    dsn: str, undisturbed: Outcome, tmp_path: Path, fault: Fault, number: int
) -> None:
    _prepare(dsn)
    timeouts = Timeouts(transaction_seconds=5) if fault is Fault.SILENCE else PATIENT
    with PostgresProxy(dsn, fault, number) as proxy:
        assert drive(proxy.dsn, tmp_path, QUERY_ID, timeouts) == ["Written"] * BATCHES
        assert proxy.struck.is_set()
    assert _outcome(dsn) == undisturbed


@pytest.mark.parametrize("point", ["S5", "S7"])
def test_half_open_line_is_cut_and_the_batch_written_on_another(
    dsn: str, undisturbed: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    _prepare(dsn)
    # The server, too, must find out by itself that nobody is there, before its locks are free.
    impatient = Timeouts(lock_seconds=1, idle_seconds=2, transaction_seconds=2, deadline_seconds=60)
    with PostgresProxy(dsn) as proxy:
        _at(monkeypatch, point, proxy.swallow)
        assert drive(proxy.dsn, tmp_path, QUERY_ID, impatient) == ["Written"] * BATCHES
        assert proxy.struck.is_set()
    assert _outcome(dsn) == undisturbed


def test_half_open_line_in_the_middle_of_copy_holds_nobody_longer_than_the_deadline(
    dsn: str, undisturbed: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare(dsn)
    # A server that reads a COPY looks at no timeout: the line itself must be found dead.
    impatient = Timeouts(lock_seconds=1, transaction_seconds=2, deadline_seconds=4)
    with PostgresProxy(dsn) as proxy:
        _at(monkeypatch, "S4", proxy.swallow)
        with pytest.raises(
            SinkUnavailable, match=r"Batch 1 was not written by this run\. Spark replays it"
        ):
            drive(proxy.dsn, tmp_path, QUERY_ID, impatient)
        assert proxy.struck.is_set()
        proxy.give_up()
        assert drive(proxy.dsn, tmp_path, QUERY_ID) == ["Written"] * (BATCHES - 1)
    assert _outcome(dsn) == undisturbed


def test_commit_whose_fate_stays_unknown_is_called_so_and_settled_by_the_restart(
    dsn: str, undisturbed: Outcome, tmp_path: Path
) -> None:
    _prepare(dsn)
    hasty = Timeouts(connect_seconds=2, deadline_seconds=1)
    words = r"COMMIT of batch 1 may have been sent, and was not answered.*the ledger decides"
    with (
        PostgresProxy(dsn, Fault.ANSWER_LOST_AND_SERVER_GONE, SECOND_BATCH_COMMIT) as proxy,
        pytest.raises(SinkUnavailable, match=words),
    ):
        drive(proxy.dsn, tmp_path, QUERY_ID, hasty)
    assert drive(dsn, tmp_path, QUERY_ID) == ["Replayed", "Written"]
    assert _outcome(dsn) == undisturbed


def test_driver_that_stands_still_loses_its_locks_and_is_fenced(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = Driver(dsn, query_id=QUERY_ID, timeouts=Timeouts(idle_seconds=0.5))
    newer = Driver(dsn, query_id=QUERY_ID)
    try:
        standing.batch(0, decision("m_1"))

        def stand(name: str) -> None:
            # It holds the stream's lock, and a new driver starts on the same checkpoint.
            if name == "S3":
                monkeypatch.undo()
                assert isinstance(newer.batch(1, decision("m_2")), Written)

        monkeypatch.setattr(holdfast.sink.transaction.write_batch, "failpoint", stand)
        with pytest.raises(Fenced):
            standing.batch(1, decision("m_2"))
    finally:
        standing.sink.close()
        newer.sink.close()
    written = db.execute("SELECT batch_id, epoch FROM holdfast.batch ORDER BY 1").fetchall()
    assert written == [(0, 1), (1, 2)]


def test_lock_that_somebody_holds_is_waited_for(
    dsn: str, db: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    spark = Driver(dsn, query_id=QUERY_ID, timeouts=Timeouts(lock_seconds=0.2, deadline_seconds=60))
    try:
        spark.batch(0)
        with ThreadPoolExecutor(1) as thread:
            with db.transaction():
                db.execute("SELECT FROM holdfast.stream FOR UPDATE")
                writing = thread.submit(spark.batch, 1, decision())
                eventually(lambda: "lock timeout" in caplog.text)
            assert isinstance(writing.result(60), Written)
    finally:
        spark.sink.close()
