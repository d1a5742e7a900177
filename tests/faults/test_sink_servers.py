"""The sink while its server dies, comes back, or is a standby for a while: a server of its own.

Real: the server's processes, SIGKILL, recovery, a standby and its promotion, passwords. Doubled:
Spark, by the program that keeps a checkpoint. Asserted: the rows of every table of the sink,
compared with those of a run that nothing happened to.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import holdfast.sink.transaction.driver_path
import holdfast.sink.transaction.write_batch
import holdfast.sink.transaction.writer
from holdfast.deploy.local.account import account_for
from holdfast.sink import Written
from holdfast.sink.errors import AccessDenied
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.sender import BLOCK, decision
from tests.support.job.driver import PATIENT, Driver
from tests.support.job.job_stream import contents
from tests.support.servers.databases import server_directory
from tests.support.servers.embedded import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.rest, pytest.mark.faults]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with server_directory() as directory:
        yield Server(directory)


@pytest.fixture
def spark(server: Server) -> Iterator[Driver]:
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("TRUNCATE holdfast.stream, holdfast.subject, holdfast.entry_key CASCADE")
    driver = Driver(server.dsn, timeouts=PATIENT)
    driver.batch(0, decision("m_1"))
    yield driver
    driver.sink.close()


def _at(monkeypatch: pytest.MonkeyPatch, point: str, strike: Callable[[], object]) -> None:
    """Strike when a point is passed for the first time."""
    passed = []

    def pass_by(name: str) -> None:
        if name == point and not passed:
            passed.append(name)
            strike()

    for module in (
        holdfast.sink.transaction.driver_path,
        holdfast.sink.transaction.write_batch,
        holdfast.sink.transaction.writer,
    ):
        monkeypatch.setattr(module, "failpoint", pass_by)


def _written(dsn: str) -> tuple[object, ...]:
    with psycopg.connect(dsn, autocommit=True) as db:
        tables = contents(db)
    return [row[2:5] for row in tables["batch"]], tables["subject"], len(tables["entry"])


EXPECTED = ([(0, 1, 1), (1, 2, 2)], [("m_1", 1, BLOCK), ("m_2", 1, BLOCK), ("m_3", 1, BLOCK)], 3)


@pytest.mark.parametrize("point", ["S3", "S4", "S7"])
def test_backend_kill_that_restarts_the_server_costs_one_attempt(
    server: Server, spark: Driver, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def kill() -> None:
        connection = spark.sink._writer._connection
        assert connection is not None
        psutil.Process(connection.info.backend_pid).kill()

    _at(monkeypatch, point, kill)
    assert isinstance(spark.batch(1, decision("m_2"), decision("m_3")), Written)
    assert _written(server.dsn) == EXPECTED


@pytest.mark.parametrize("point", ["S5", "S7", "S8"])
def test_killed_postmaster_is_survived_once_it_is_restarted(
    server: Server, spark: Driver, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with ThreadPoolExecutor(1) as thread:
        starts: list[Future[None]] = []

        def kill() -> None:
            server.kill()
            starts.append(thread.submit(server.start))

        _at(monkeypatch, point, kill)
        assert isinstance(spark.batch(1, decision("m_2"), decision("m_3")), Written)
        # Raises what kept the server from its start.
        starts[-1].result()
    assert _written(server.dsn) == EXPECTED


def test_standby_that_is_promoted_in_the_end_is_waited_for(
    server: Server, spark: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    server.stop()
    signal = server.data / "standby.signal"
    signal.touch()
    account_for(server.data).own(signal)
    server.start()
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(spark.batch, 1, decision("m_2"), decision("m_3"))
        eventually(lambda: "it is read-only or a standby" in caplog.text)
        with psycopg.connect(server.dsn, autocommit=True) as db:
            assert db.execute("SELECT pg_promote()").fetchone() == (True,)
        assert isinstance(writing.result(60), Written)
    assert _written(server.dsn) == EXPECTED


@pytest.mark.parametrize("fault", ["wrong", "expired"])
def test_wrong_password_is_refused_without_being_shown(
    server: Server, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS app")
        until = "2001-01-01" if fault == "expired" else "infinity"
        db.execute(f"CREATE ROLE app LOGIN PASSWORD 'canary' VALID UNTIL '{until}'")
    password = "canary" if fault == "expired" else "canary and more"
    dsn = make_conninfo(server.dsn, user="app", password=password)
    spark = Driver(dsn, timeouts=Timeouts(deadline_seconds=0.3))
    for attempt in (spark.sink.check, lambda: spark.batch(0, decision())):
        with pytest.raises(AccessDenied, match="password authentication failed") as raised:
            attempt()
        assert "canary" not in str(raised.value)
    assert "canary" not in caplog.text
    assert "canary" not in repr(spark.sink)
