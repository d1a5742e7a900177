"""The sink dies, or loses its line, at each of its points; afterwards nothing is lost or doubled.

Real: the process, SIGKILL, Postgres, its backends, a proxy in between. Doubled: Spark, by a program
that keeps a checkpoint in the same order (offsets, sink, commits), and calls the function of the
tasks of the staged path. Asserted: the rows of every table of the sink, compared with those of a
run on the driver path that nothing happened to.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from typing import Any
from uuid import UUID

import psycopg
import pytest

import holdfast.sink.transaction.driver_path
import holdfast.sink.transaction.staging
import holdfast.sink.transaction.write_batch
import holdfast.sink.transaction.writer
from holdfast.sink import Fenced, Written
from holdfast.sink.contract.failpoints import ENVIRONMENT
from holdfast.sink.errors import SinkUnavailable
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.sender import decision
from tests.support.job.driver import PATIENT, Driver
from tests.support.job.job_stream import contents
from tests.support.job.sink_program import BATCHES, drive
from tests.support.servers.databases import copy_of
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.faults

QUERY_ID = UUID("5f3a1c58-6f0e-4c7e-9d5b-0b5a7d2f6c11")
POINTS = [f"S{n}" for n in range(1, 10)]
RUN_COMMIT, SECOND_BATCH_COMMIT = 3, 5
"""Of a session's COMMITs: its checks, the partitions, the run, batch 0, batch 1."""

COMMITTED = {"S8", "S9"}
"""The points that lie behind the COMMIT: the batch comes again and is found written."""

Outcome = dict[str, list[tuple[object, ...]]]


def _prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("CREATE TABLE public.companion (rows bigint)")
        db.execute("GRANT INSERT ON public.companion TO holdfast_sink")


@pytest.fixture
def dsn(dsn: str) -> str:
    """The test's database, with a table for the companion rows."""
    _prepare(dsn)
    return dsn


def _outcome(dsn: str) -> Outcome:
    with psycopg.connect(dsn, autocommit=True) as db:
        tables = contents(db)
        tables["companion"] = db.execute("SELECT rows FROM public.companion ORDER BY 1").fetchall()
        tables["stage"] = db.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^stage_[0-9]+$'"
        ).fetchall()
    return tables


@pytest.fixture(scope="module")
def undisturbed(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[bool, Outcome]:
    """What the driver path leaves in peace: of all rows, and (True) of what can be staged."""
    left = {}
    for plain in (False, True):
        with copy_of(server_dsn, template_database) as dsn:
            _prepare(dsn)
            folder = tmp_path_factory.mktemp("undisturbed")
            assert drive(dsn, folder, QUERY_ID, plain=plain) == ["Written"] * BATCHES
            left[plain] = _outcome(dsn)
    return left


def _kill_at(point: str, dsn: str, folder: Path, *path: str) -> None:
    """Run the program until it is killed when its second batch passes `point`."""
    program = (sys.executable, "-m", "tests.support.job.sink_program")
    killed = subprocess.Popen(
        [*program, dsn, str(folder), str(QUERY_ID), *path],
        cwd=Path(__file__).parents[2],
        env={**os.environ, ENVIRONMENT: f"{point}=kill@2"},
    )
    assert killed.wait(timeout=120) == -SIGKILL


def _cases(*kept: tuple[Any, ...], of: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Every case, of which `make test` runs these."""
    return [pytest.param(*each, marks=() if each in kept else pytest.mark.rest) for each in of]


@pytest.mark.guarantee(1)
@pytest.mark.parametrize(
    ("point", "staged"),
    _cases(
        ("S7", False),
        ("T2/2/0", True),
        of=[
            *((point, False) for point in POINTS),
            *((point, True) for point in ("T1/0/0", "T2/2/0", *POINTS)),
        ],
    ),
)
def test_driver_killed_at_a_point_leaves_what_an_undisturbed_run_leaves(
    world: World, undisturbed: dict[bool, Outcome], point: str, *, staged: bool
) -> None:
    _kill_at(point, world.dsn, world.tmp_path, *(["staged"] if staged else []))
    outcomes = drive(world.dsn, world.tmp_path, QUERY_ID, staged=staged)
    assert outcomes == ["Replayed" if point in COMMITTED else "Written", "Written"]
    assert _outcome(world.dsn) == undisturbed[staged]


@pytest.mark.rest
@pytest.mark.parametrize("point", ["S4", "S8"])
@pytest.mark.parametrize("staged", [True, False])
def test_batch_that_was_begun_on_one_path_is_finished_on_the_other(
    world: World, undisturbed: dict[bool, Outcome], point: str, *, staged: bool
) -> None:
    _kill_at(point, world.dsn, world.tmp_path, "staged" if staged else "plain")
    outcomes = drive(world.dsn, world.tmp_path, QUERY_ID, staged=not staged, plain=True)
    assert outcomes == ["Replayed" if point in COMMITTED else "Written", "Written"]
    assert _outcome(world.dsn) == undisturbed[True]


def _at(monkeypatch: pytest.MonkeyPatch, point: str, strike: Callable[[], object]) -> list[str]:
    """Strike when the second batch passes a point for the first time; returns the passes."""
    passed: list[str] = []

    def pass_by(name: str) -> None:
        if name == point:
            passed.append(name)
            if len(passed) == 2:
                strike()

    for module in (
        holdfast.sink.transaction.driver_path,
        holdfast.sink.transaction.staging,
        holdfast.sink.transaction.write_batch,
        holdfast.sink.transaction.writer,
    ):
        monkeypatch.setattr(module, "failpoint", pass_by)
    return passed


@pytest.mark.parametrize(
    ("point", "staged"),
    _cases(
        ("S7", False), of=[(point, staged) for staged in (False, True) for point in POINTS[1:7]]
    ),
)
def test_backend_killed_at_a_point_costs_one_more_attempt(
    world: World,
    undisturbed: dict[bool, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    *,
    staged: bool,
) -> None:
    killed: list[object] = []

    def strike() -> None:
        row = world.db.execute(
            "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast sink payouts' AND datname = current_database()"
        ).fetchone()
        killed.append(row)

    passed = _at(monkeypatch, point, strike)
    assert drive(world.dsn, world.tmp_path, QUERY_ID, staged=staged) == ["Written"] * BATCHES
    assert (killed, len(passed)) == ([(1,)], BATCHES + 1)
    assert _outcome(world.dsn) == undisturbed[staged]


@pytest.mark.parametrize(
    ("fault", "number", "staged"),
    _cases(
        (Fault.ANSWER_LOST, SECOND_BATCH_COMMIT, False),
        of=[
            (fault, number, False)
            for fault in (Fault.COMMIT_LOST, Fault.ANSWER_LOST, Fault.SILENCE)
            for number in (RUN_COMMIT, SECOND_BATCH_COMMIT)
        ]
        + [(fault, 0, True) for fault in (Fault.COMMIT_LOST, Fault.ANSWER_LOST)],
    ),
)
def test_commit_without_an_answer_is_settled_by_the_ledger(
    world: World,
    undisturbed: dict[bool, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    number: int,
    *,
    staged: bool,
) -> None:
    timeouts = Timeouts(transaction_seconds=5) if fault is Fault.SILENCE else PATIENT
    with PostgresProxy(world.dsn, fault, number) as proxy:
        if not number:
            # Tasks commit as well: the next COMMIT after the point is that of the batch.
            _at(monkeypatch, "S7", proxy.strike)
        outcomes = drive(proxy.dsn, world.tmp_path, QUERY_ID, timeouts, staged=staged)
        assert outcomes == ["Written"] * BATCHES
        assert proxy.struck.is_set()
    assert _outcome(world.dsn) == undisturbed[staged]


@pytest.mark.rest
@pytest.mark.parametrize("point", ["S5", "S7"])
def test_half_open_connection_is_cut_and_the_batch_retried(
    world: World, undisturbed: dict[bool, Outcome], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    # The server, too, must find out by itself that nobody is there, before its locks are free.
    impatient = Timeouts(lock_seconds=1, idle_seconds=2, transaction_seconds=2, deadline_seconds=60)
    with PostgresProxy(world.dsn) as proxy:
        _at(monkeypatch, point, proxy.swallow)
        assert drive(proxy.dsn, world.tmp_path, QUERY_ID, impatient) == ["Written"] * BATCHES
        assert proxy.struck.is_set()
    assert _outcome(world.dsn) == undisturbed[False]


@pytest.mark.rest
def test_half_open_connection_in_copy_ends_at_the_deadline(
    world: World, undisturbed: dict[bool, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that reads a COPY looks at no timeout: the line itself must be found dead.
    impatient = Timeouts(lock_seconds=1, transaction_seconds=2, deadline_seconds=4)
    with PostgresProxy(world.dsn) as proxy:
        _at(monkeypatch, "S4", proxy.swallow)
        with pytest.raises(
            SinkUnavailable, match=r"Batch 1 was not written by this run\. Spark replays it"
        ):
            drive(proxy.dsn, world.tmp_path, QUERY_ID, impatient)
        assert proxy.struck.is_set()
        proxy.give_up()
        assert drive(proxy.dsn, world.tmp_path, QUERY_ID) == ["Written"] * (BATCHES - 1)
    assert _outcome(world.dsn) == undisturbed[False]


@pytest.mark.rest
def test_unknown_commit_is_reported_and_resolved_by_the_restart(
    world: World, undisturbed: dict[bool, Outcome]
) -> None:
    hasty = Timeouts(connect_seconds=2, deadline_seconds=1)
    words = r"COMMIT of batch 1 may have been sent, and was not answered.*the ledger decides"
    with (
        PostgresProxy(world.dsn, Fault.ANSWER_LOST_AND_SERVER_GONE, SECOND_BATCH_COMMIT) as proxy,
        pytest.raises(SinkUnavailable, match=words),
    ):
        drive(proxy.dsn, world.tmp_path, QUERY_ID, hasty)
    assert drive(world.dsn, world.tmp_path, QUERY_ID) == ["Replayed", "Written"]
    assert _outcome(world.dsn) == undisturbed[False]


def test_stopped_driver_loses_its_locks_and_is_fenced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = Driver(world.dsn, query_id=QUERY_ID, timeouts=Timeouts(idle_seconds=0.5))
    newer = Driver(world.dsn, query_id=QUERY_ID)
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
    written = world.db.execute("SELECT batch_id, epoch FROM holdfast.batch ORDER BY 1").fetchall()
    assert written == [(0, 1), (1, 2)]


def test_lock_that_somebody_holds_is_waited_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    spark = Driver(
        world.dsn, query_id=QUERY_ID, timeouts=Timeouts(lock_seconds=0.2, deadline_seconds=60)
    )
    try:
        spark.batch(0)
        with ThreadPoolExecutor(1) as thread:
            with world.db.transaction():
                world.db.execute("SELECT FROM holdfast.stream FOR UPDATE")
                writing = thread.submit(spark.batch, 1, decision())
                eventually(lambda: "lock timeout" in caplog.text)
            assert isinstance(writing.result(60), Written)
    finally:
        spark.sink.close()
