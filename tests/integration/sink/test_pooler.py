"""The sink behind pgbouncer in transaction mode: each transaction may get another session."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import holdfast.sink.transaction.write_batch
import holdfast.sink.transaction.writer
from holdfast.sink import ReplayDiverged, Replayed, Written
from holdfast.sink.contract.roles import SINK
from tests.support.dispatch.sender import alternating, decision
from tests.support.job.driver import PATIENT
from tests.support.job.job_stream import contents, sequences
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres_proxy import Fault, PostgresProxy
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


BATCHES = 12
SETTINGS = """
    SELECT current_user::text, current_setting('role'), current_setting('search_path'),
        current_setting('lock_timeout'), current_setting('statement_timeout'),
        current_setting('idle_in_transaction_session_timeout'), current_setting('timezone'),
        (SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relname ~ 'holdfast')"""


@pytest.fixture
def pooler(dsn: str) -> Iterator[PgBouncer]:
    with PgBouncer(dsn, pool=1) as pooler:
        yield pooler


def _settings(dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        row = connection.execute(SETTINGS).fetchone()
    assert row is not None
    return row


def test_two_streams_share_one_session_and_leave_what_two_sessions_leave(
    world: World,
    pooler: PgBouncer,
    make_database: Callable[[str | None], str],
    template_database: str,
) -> None:
    query_ids = {"one": uuid4(), "two": uuid4()}
    backends: set[int] = set()

    def also(connection: psycopg.Connection, _rows: object) -> None:
        backends.add(connection.execute("SELECT pg_backend_pid()").fetchone()[0])  # type: ignore[index]  # one row

    def drive(target: str, stream: str) -> None:
        spark = world.driver(target, stream=stream, query_id=query_ids[stream], also=also)
        for n in range(BATCHES):
            rows = alternating(f"{stream}_a", [n]) + alternating(f"{stream}_b", [n])
            assert isinstance(spark.batch(n, *rows, decision("", n)), Written)
            assert isinstance(spark.batch(n, *rows, decision("", n)), Replayed)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda stream: drive(pooler.dsn, stream), query_ids))
    assert len(backends) == 1

    direct = make_database(template_database)
    for stream in query_ids:
        drive(direct, stream)
    with psycopg.connect(direct, autocommit=True) as other:
        assert contents(world.db) == contents(other)


def test_batch_leaves_nothing_behind_in_a_pooled_session(
    world: World, pooler: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _settings(pooler.dsn)
    spark = world.driver(pooler.dsn)
    spark.batch(0, decision())
    assert _settings(pooler.dsn) == before
    with pytest.raises(ReplayDiverged):
        spark.batch(0, decision("m_2"))
    assert _settings(pooler.dsn) == before

    def fail(_name: str) -> None:
        raise RuntimeError("the driver's own fault")

    monkeypatch.setattr(holdfast.sink.transaction.write_batch, "failpoint", fail)
    with pytest.raises(RuntimeError):
        spark.batch(1, decision("m_2"))
    assert _settings(pooler.dsn) == before
    assert before[0] != SINK


def test_what_the_next_owner_sets_does_not_reach_a_batch(world: World, pooler: PgBouncer) -> None:
    spark = world.driver(pooler.dsn)
    spark.batch(0, *alternating("m_1", [0]))
    with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) as other:
        for statement in (
            "CREATE TEMPORARY TABLE entry (nothing integer)",
            "SET search_path = nowhere",
            "SET datestyle = 'SQL, DMY'",
            "SET role = holdfast_reader",
            "SET lock_timeout = 1",
            "SET statement_timeout = 20",
        ):
            other.execute(statement)
        assert isinstance(spark.batch(1, *alternating("m_1", [1])), Written)
        other.execute("RESET ROLE")
    assert sequences(world.db, "m_1") == [1, 2]


def test_standby_behind_the_pooler_is_waited_for(
    world: World, pooler: PgBouncer, caplog: pytest.LogCaptureFixture
) -> None:
    spark = world.driver(pooler.dsn)
    spark.batch(0, *alternating("m_1", [0]))
    with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) as other:
        other.execute("SET default_transaction_read_only = on")
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(spark.batch, 1, *alternating("m_1", [1]))
            eventually(lambda: "attempt 2 failed" in caplog.text)
            other.execute("SET default_transaction_read_only = off")
            assert isinstance(writing.result(60), Written)


@pytest.mark.parametrize("point", ["S2", "S3", "S6", "S7"])
def test_pooler_killed_during_a_batch_costs_one_more_attempt(
    world: World, pooler: PgBouncer, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    spark = world.driver(pooler.dsn)
    spark.batch(0, *alternating("m_1", [0]))
    killed = []

    def strike(name: str) -> None:
        if name == point and not killed:
            killed.append(name)
            pooler.kill()
            pooler.start()

    monkeypatch.setattr(holdfast.sink.transaction.write_batch, "failpoint", strike)
    monkeypatch.setattr(holdfast.sink.transaction.writer, "failpoint", strike)
    assert isinstance(spark.batch(1, *alternating("m_1", [1, 2])), Written)
    assert killed
    assert sequences(world.db, "m_1") == [1, 2, 3]
    assert world.db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (2,)


@pytest.mark.parametrize("fault", [Fault.COMMIT_LOST, Fault.ANSWER_LOST])
def test_ledger_settles_commit_lost_at_pooler(
    world: World, pooler: PgBouncer, fault: Fault
) -> None:
    with PostgresProxy(pooler.dsn, fault, 5) as proxy:
        spark = world.driver(proxy.dsn, timeouts=PATIENT)
        assert isinstance(spark.batch(0, *alternating("m_1", [0])), Written)
        assert not proxy.struck.is_set()
        assert isinstance(spark.batch(1, *alternating("m_1", [1, 2])), Written)
        assert proxy.struck.is_set()
    assert sequences(world.db, "m_1") == [1, 2, 3]
    assert world.db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (2,)
