"""`OutboxSink.read`: what a job looks up before it starts, in the sink's role, of one moment."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.sink import OutboxSink
from holdfast.sink.contract.roles import SINK
from holdfast.sink.errors import SchemaMismatch, SinkUnavailable
from holdfast.sink.transaction.database import Timeouts
from tests.support.job.driver import PATIENT


@pytest.fixture
def sink(dsn: str) -> Iterator[OutboxSink]:
    sink = OutboxSink(dsn, stream="payouts", timeouts=PATIENT)
    yield sink
    sink.close()


def _streams(connection: psycopg.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM holdfast.stream").fetchone() or (-1,)
    return int(count)


def test_it_runs_as_the_sink_and_returns_what_was_found(sink: OutboxSink) -> None:
    found = sink.read(lambda connection: connection.execute("SELECT current_user").fetchall())
    assert found == [(SINK,)]


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


def test_it_is_tried_again_as_a_whole_when_the_connection_breaks(
    sink: OutboxSink, db: psycopg.Connection
) -> None:
    tries = []

    def work(connection: psycopg.Connection) -> int:
        tries.append(connection.info.backend_pid)
        if len(tries) == 1:
            db.execute("SELECT pg_terminate_backend(%s)", [tries[0]])
        return _streams(connection)

    assert sink.read(work) == 0
    assert len(set(tries)) == 2


def test_a_database_that_stays_away_is_said_in_words() -> None:
    nowhere = "postgresql://me:secret@127.0.0.1:1/x"
    sink = OutboxSink(nowhere, stream="payouts", timeouts=Timeouts(deadline_seconds=0))
    with pytest.raises(SinkUnavailable, match="Nothing was read") as raised:
        sink.read(_streams)
    assert "secret" not in str(raised.value)
