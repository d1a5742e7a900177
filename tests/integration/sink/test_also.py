"""What `also` may do to the transaction it is called in, and what the sink says when it did."""

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from holdfast.sink import OutboxSink, Replayed, Written
from holdfast.sink.errors import CompanionFailed
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.entries import RELEASE, decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import sequences

MakeDriver = Callable[..., Driver]
Also = Callable[[psycopg.Connection, object], None]

NOWHERE = "postgresql://me:secret@127.0.0.1:1/x"


def _sql(*statements: str) -> Also:
    def also(connection: psycopg.Connection, _rows: object) -> None:
        for statement in statements:
            connection.execute(statement)

    return also


def _commit_and_hide(connection: psycopg.Connection, _rows: object) -> None:
    _sql("COMMIT", "BEGIN")(connection, None)
    with suppress(psycopg.Error):
        connection.execute("SELECT 1 / 0")


def _commit_and_fail(connection: psycopg.Connection, _rows: object) -> None:
    connection.execute("COMMIT")
    raise KeyError("mistake")


def _leave_rows_unread(connection: psycopg.Connection, _rows: object) -> None:
    rows = connection.cursor().stream("SELECT generate_series(1, 100000)")
    kept.append((next(rows), rows))


kept: list[object] = []


def _batches(db: psycopg.Connection) -> int:
    return db.execute("SELECT FROM holdfast.batch").rowcount


@pytest.mark.parametrize(
    "also",
    [
        _sql("ROLLBACK", "BEGIN"),
        _sql("ROLLBACK AND CHAIN"),
        _sql("SET search_path = pg_temp", "ROLLBACK", "BEGIN", "CREATE TEMPORARY TABLE t (n int)"),
    ],
    ids=["rollback and begin", "rollback and chain", "another transaction with an id"],
)
def test_batch_that_also_rolled_back_is_not_said_to_be_written(
    driver: MakeDriver, db: psycopg.Connection, also: Also
) -> None:
    spark = driver(also=also)
    with pytest.raises(CompanionFailed, match=r"Nothing of the batch was written.*then restart"):
        spark.batch(0, decision())
    assert _batches(db) == 0
    healed = driver(query_id=spark.query_id)
    assert isinstance(healed.batch(0, decision()), Written)
    assert isinstance(healed.batch(1, decision("m_482", 2, RELEASE)), Written)


@pytest.mark.parametrize(
    "also",
    [_sql("COMMIT"), _sql("COMMIT AND CHAIN"), _commit_and_hide, _commit_and_fail],
    ids=["commit", "commit and chain", "commit and a hidden error", "commit and an error"],
)
def test_batch_that_also_committed_is_said_to_be_written_and_comes_again_as_a_replay(
    driver: MakeDriver, db: psycopg.Connection, also: Also
) -> None:
    spark = driver(also=also)
    with pytest.raises(CompanionFailed, match="the batch is written, with what `also`") as raised:
        spark.batch(0, decision())
    assert "othing of the batch was written" not in str(raised.value)
    assert _batches(db) == 1
    assert isinstance(driver(query_id=spark.query_id).batch(0, decision()), Replayed)
    assert sequences(db, "m_482") == [1]


@pytest.mark.parametrize(
    "also",
    [lambda connection, _rows: connection.close(), _leave_rows_unread],
    ids=["closed", "rows unread"],
)
def test_connection_that_also_leaves_unusable_is_a_mistake_of_also(
    driver: MakeDriver, db: psycopg.Connection, also: Also
) -> None:
    spark = driver(also=also)
    with pytest.raises(CompanionFailed, match="as a whole or not at all"):
        spark.batch(0, decision())
    kept.clear()
    assert _batches(db) == 0
    assert isinstance(driver(query_id=spark.query_id).batch(0, decision()), Written)


def test_connection_of_its_own_that_also_cannot_get_is_not_the_sinks_database(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    called: list[None] = []

    def also(_connection: psycopg.Connection, _rows: object) -> None:
        called.append(None)
        psycopg.connect(NOWHERE)

    spark = driver(also=also)
    with pytest.raises(CompanionFailed, match=r"another connection.*Nothing of") as raised:
        spark.batch(0, decision())
    assert isinstance(raised.value.__cause__, psycopg.OperationalError)
    assert "secret" not in str(raised.value)
    assert len(called) == 1
    assert _batches(db) == 0


def test_sink_of_its_own_that_also_cannot_use_is_not_the_sinks_database(
    driver: MakeDriver, dsn: str
) -> None:
    other = OutboxSink(
        f"{dsn} options='-c default_transaction_read_only=on'",
        stream="other",
        timeouts=Timeouts(deadline_seconds=0),
    )
    with pytest.raises(CompanionFailed, match="it is read-only or a standby"):
        driver(also=lambda _connection, _rows: other.check()).batch(0, decision())


@pytest.mark.parametrize("hidden", [False, True], ids=["raised", "hidden"])
def test_connection_that_is_lost_while_also_runs_costs_one_more_attempt(
    driver: MakeDriver, db: psycopg.Connection, hidden: bool
) -> None:
    called: list[None] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        called.append(None)
        if len(called) == 1:
            db.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
        with suppress(*([psycopg.OperationalError] if hidden else [])):
            connection.execute("SELECT 1")

    assert isinstance(driver(also=also).batch(0, decision()), Written)
    assert len(called) == 2


def test_lock_that_also_waits_for_in_a_savepoint_costs_one_more_attempt(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    called: list[None] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        called.append(None)
        with connection.transaction():
            if len(called) == 1:
                connection.execute("DO $$ BEGIN RAISE 'busy' USING ERRCODE = '55P03'; END $$")

    assert isinstance(driver(also=also).batch(0, decision()), Written)
    assert len(called) == 2
    assert _batches(db) == 1
