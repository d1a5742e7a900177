"""What a job reads of its stream's past before it begins, in the sink's role, of one moment."""

from collections.abc import Iterator
from contextlib import closing
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import OutboxSink, UnadoptedCheckpoint
from holdfast.sink.contract.roles import SINK
from holdfast.sink.errors import SchemaMismatch, SinkUnavailable
from holdfast.sink.transaction.database import Timeouts, open_session, transaction
from holdfast.sink.transaction.login import Login
from holdfast.spark_app.checkpoint.initial import Initial, Past, _statement, read_past
from holdfast.spark_app.exposure import schema
from holdfast.spark_app.operator import output
from holdfast.spark_app.operator.blobs import Kind, to_blob
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import PATIENT, Driver
from tests.support.job.jobs import at, micros
from tests.support.world import World

NOTHING = Past(recorded=False, initial=None)


@pytest.fixture
def driver(dsn: str) -> Iterator[Driver]:
    driver = Driver(dsn)
    yield driver
    driver.sink.close()


@pytest.fixture
def reader(dsn: str) -> Iterator[OutboxSink]:
    sink = OutboxSink(dsn, stream="payouts", timeouts=PATIENT)
    yield sink
    sink.close()


@pytest.fixture
def other(dsn: str) -> Iterator[Driver]:
    driver = Driver(dsn, stream="others")
    yield driver
    driver.sink.close()


def _publish(db: psycopg.Connection, merchant: str, *clocks: str, stream: str = "payouts") -> None:
    for clock in clocks:
        db.execute(
            """
            INSERT INTO holdfast.exposure_window (stream, merchant_id, window_end, window_start,
                revision, exposure_minor, currency, policy_version)
            VALUES (%(stream)s, %(merchant)s, %(end)s, %(end)s - interval '15 min',
                1, 5, 'USD', 'v')
            """,
            {"stream": stream, "merchant": merchant, "end": at(clock)},
        )


def _adopt(db: psycopg.Connection, query_id: UUID) -> None:
    db.execute("UPDATE holdfast.stream SET query_id = %s, adopted_at = now()", [query_id])


def test_a_new_stream_has_no_past(reader: OutboxSink) -> None:
    assert read_past(reader, "payouts", uuid4()) == NOTHING


def test_the_past_is_the_newest_window_and_who_is_held(world: World, driver: Driver) -> None:
    driver.batch(0, decision("m_1"), decision("m_2"), decision("m_3"))
    driver.batch(1, decision("m_2", 1, RELEASE))
    _publish(world.db, "m_1", "12:15", "12:30")
    _publish(world.db, "m_2", "12:15", "12:45")
    _publish(world.db, "m_3", "12:15")
    new = uuid4()
    _adopt(world.db, new)
    expected = Initial(
        micros(at("12:45")), {"m_1": micros(at("12:30")), "m_3": micros(at("12:15"))}
    )
    assert read_past(driver.sink, "payouts", new) == Past(recorded=False, initial=expected)


def test_nothing_of_another_stream_is_taken(world: World, driver: Driver, other: Driver) -> None:
    driver.batch(0, decision("m_1"), decision("m_2"), decision("m_3", type_=RELEASE))
    other.batch(0, decision("m_3", 2), decision("m_1", 2, RELEASE))
    _publish(world.db, "m_1", "12:15")
    _publish(world.db, "m_2", "13:00", stream="others")
    _publish(world.db, "m_3", "12:15")
    initial = read_past(driver.sink, "payouts", driver.query_id).initial
    assert initial == Initial(micros(at("12:15")), {"m_1": micros(at("12:15"))})


def test_published_window_keeps_its_newest_revision(db: psycopg.Connection) -> None:
    """An adopted checkpoint that recomputes the stream emits it again from revision 1 on."""
    publish = output.writer("payouts")
    window = {
        "merchant_id": "m_1",
        "window_start": at("12:00"),
        "window_end": at("12:15"),
        "exposure_minor": 0,
        "currency": "USD",
        "policy_version": "v",
    }
    for revision in (1, 3, 2):
        emitted = [{**window, "revision": revision, "exposure_minor": revision}]
        blob = to_blob(pa.Table.from_pylist(emitted, schema.WINDOWS))
        with db.transaction():
            publish(db, pa.table({"kind": [Kind.WINDOWS.value], "blob": [blob]}))
    kept = db.execute("SELECT revision, exposure_minor FROM holdfast.exposure_window")
    assert kept.fetchall() == [(3, 3)]


def test_a_query_that_has_written_a_batch_is_known(driver: Driver) -> None:
    driver.sink.start(driver.query_id, driver.run_id)
    assert not read_past(driver.sink, "payouts", driver.query_id).recorded
    driver.batch(0)
    assert read_past(driver.sink, "payouts", driver.query_id).recorded


def test_before_the_adoption_nothing_is_taken_for_final(world: World, driver: Driver) -> None:
    """The old query may still publish: a read of its past would be too early."""
    driver.batch(0, decision("m_1", type_=BLOCK))
    _publish(world.db, "m_1", "12:15")
    with pytest.raises(UnadoptedCheckpoint, match="holdfast stream adopt payouts --query-id"):
        read_past(driver.sink, "payouts", uuid4())
    with (
        closing(OutboxSink(world.dsn, stream="payouts", checkpoint="/new/checkpoint")) as known,
        pytest.raises(UnadoptedCheckpoint, match="the checkpoint /new/checkpoint is query"),
    ):
        read_past(known, "payouts", uuid4())


MERCHANTS, WINDOWS = 20_000, 10


def test_frontier_and_hold_are_found_by_indexes(dsn: str, db: psycopg.Connection) -> None:
    db.execute(
        """
        INSERT INTO holdfast.exposure_window (stream, merchant_id, window_end, window_start,
            revision, exposure_minor, currency, policy_version)
        SELECT 'payouts', 'm_' || n, %(first)s + w * interval '15 min',
            %(first)s + (w - 1) * interval '15 min', 1, 5, 'USD', 'v'
        FROM generate_series(1, %(merchants)s) AS n, generate_series(1, %(windows)s) AS w
        """,
        {"first": at("00:00"), "merchants": MERCHANTS, "windows": WINDOWS},
    )
    db.execute(
        "INSERT INTO holdfast.subject (name) SELECT 'm_' || n FROM generate_series(1, %s) AS n",
        [MERCHANTS],
    )
    db.execute(
        "INSERT INTO holdfast.transition"
        " SELECT id, 'payouts', CASE WHEN id %% 100 = 0 THEN %s ELSE %s END, now(), now()"
        " FROM holdfast.subject",
        [BLOCK, RELEASE],
    )
    db.execute("VACUUM ANALYZE holdfast.exposure_window, holdfast.subject, holdfast.transition")
    asked = {"stream": "payouts", "query_id": uuid4(), "block": BLOCK}
    with (
        open_session(Login(dsn), "payouts", Timeouts()) as session,
        transaction(session, Timeouts(), read_only=True),
    ):
        plans = {
            name: "\n".join(
                line for (line,) in session.execute(b"EXPLAIN " + _statement(name), asked)
            )
            for name in ("read_past", "read_holds")
        }
        assert "ix_exposure_window_end" in plans["read_past"]
        assert "pk_exposure_window" in plans["read_holds"]
        assert "Seq Scan on exposure_window" not in plans["read_past"] + plans["read_holds"]
        initial = session.execute(_statement("read_past"), asked).fetchone()
        held = session.execute(_statement("read_holds"), asked).fetchall()
    newest = micros(at("02:30"))
    assert initial == (None, False, newest)
    assert len(held) == MERCHANTS // 100
    assert {end for _, end in held} == {newest}


@pytest.fixture
def sink(dsn: str) -> Iterator[OutboxSink]:
    sink = OutboxSink(dsn, stream="payouts", timeouts=PATIENT)
    yield sink
    sink.close()


def _streams(connection: psycopg.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM holdfast.stream").fetchone() or (-1,)
    return int(count)


def test_it_runs_as_the_sink_and_returns_what_was_found(sink: OutboxSink) -> None:
    rows = sink.read(lambda connection: connection.execute("SELECT current_user").fetchall())
    assert rows == [(SINK,)]


def test_all_of_it_is_of_one_moment(sink: OutboxSink, db: psycopg.Connection) -> None:
    def work(connection: psycopg.Connection) -> tuple[int, int]:
        before = _streams(connection)
        db.execute("INSERT INTO holdfast.stream (name) VALUES ('another')")
        return before, _streams(connection)

    assert sink.read(work) == (0, 0)
    assert sink.read(_streams) == 1


def test_it_writes_nothing(sink: OutboxSink, db: psycopg.Connection) -> None:
    statement = "INSERT INTO holdfast.stream (name) VALUES ('mine')"
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        sink.read(lambda connection: connection.execute(statement))
    assert _streams(db) == 0
    assert sink.read(_streams) == 0


def test_what_the_role_may_not_see_is_a_mismatch(sink: OutboxSink) -> None:
    with pytest.raises(SchemaMismatch, match="permission denied"):
        sink.read(lambda connection: connection.execute("SELECT body FROM holdfast.entry"))


def test_broken_connection_retries_the_full_transaction(world: World, sink: OutboxSink) -> None:
    tries = []

    def work(connection: psycopg.Connection) -> int:
        tries.append(connection.info.backend_pid)
        if len(tries) == 1:
            world.db.execute("SELECT pg_terminate_backend(%s)", [tries[0]])
        return _streams(connection)

    assert sink.read(work) == 0
    assert len(set(tries)) == 2


def test_database_that_stays_away_is_reported() -> None:
    nowhere = "postgresql://me:secret@127.0.0.1:1/x"
    sink = OutboxSink(nowhere, stream="payouts", timeouts=Timeouts(deadline_seconds=0))
    with pytest.raises(SinkUnavailable, match="Nothing was read") as raised:
        sink.read(_streams)
    assert "secret" not in str(raised.value)
