"""What commits along with a batch, and the examples of the documents."""

import doctest
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from holdfast import sink
from holdfast.sink import BatchContext, Counts, OutboxSink, Replayed, Written
from holdfast.sink.errors import AccessDenied, CompanionFailed, TooManyRefused, Transient
from holdfast.sink.rows.quarantine_limit import QuarantineLimit
from holdfast.sink.session import Identity
from holdfast.sink.transaction.database import Timeouts
from tests.support.dispatch.sender import RELEASE, SCHEMA, decision, table
from tests.support.job.driver import PATIENT, MakeDriver
from tests.support.job.job_stream import contents, sequences
from tests.support.world import World

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
def test_batch_rolled_back_by_also_is_not_reported_as_written(world: World, also: Also) -> None:
    spark = world.driver(also=also)
    with pytest.raises(CompanionFailed, match=r"Nothing of the batch was written.*then restart"):
        spark.batch(0, decision())
    assert _batches(world.db) == 0
    healed = world.driver(query_id=spark.query_id)
    assert isinstance(healed.batch(0, decision()), Written)
    assert isinstance(healed.batch(1, decision("m_482", 2, RELEASE)), Written)


@pytest.mark.parametrize(
    "also",
    [_sql("COMMIT"), _sql("COMMIT AND CHAIN"), _commit_and_hide, _commit_and_fail],
    ids=["commit", "commit and chain", "commit and a hidden error", "commit and an error"],
)
def test_batch_committed_by_also_returns_as_a_replay(world: World, also: Also) -> None:
    spark = world.driver(also=also)
    with pytest.raises(CompanionFailed, match="the batch is written, with what `also`") as raised:
        spark.batch(0, decision())
    assert "othing of the batch was written" not in str(raised.value)
    assert _batches(world.db) == 1
    assert isinstance(world.driver(query_id=spark.query_id).batch(0, decision()), Replayed)
    assert sequences(world.db, "m_482") == [1]


@pytest.mark.parametrize(
    "also",
    [lambda connection, _rows: connection.close(), _leave_rows_unread],
    ids=["closed", "rows unread"],
)
def test_unusable_connection_is_an_error_of_also(world: World, also: Also) -> None:
    spark = world.driver(also=also)
    with pytest.raises(CompanionFailed, match="as a whole or not at all"):
        spark.batch(0, decision())
    kept.clear()
    assert _batches(world.db) == 0
    assert isinstance(world.driver(query_id=spark.query_id).batch(0, decision()), Written)


def test_failed_connection_in_also_is_not_a_database_outage(world: World) -> None:
    called: list[None] = []

    def also(_connection: psycopg.Connection, _rows: object) -> None:
        called.append(None)
        psycopg.connect(NOWHERE)

    spark = world.driver(also=also)
    with pytest.raises(CompanionFailed, match=r"another connection.*Nothing of") as raised:
        spark.batch(0, decision())
    assert isinstance(raised.value.__cause__, psycopg.OperationalError)
    assert "secret" not in str(raised.value)
    assert len(called) == 1
    assert _batches(world.db) == 0


def test_failed_inner_sink_in_also_is_not_a_database_outage(world: World) -> None:
    other = OutboxSink(
        f"{world.dsn} options='-c default_transaction_read_only=on'",
        stream="other",
        timeouts=Timeouts(deadline_seconds=0),
    )
    with pytest.raises(CompanionFailed, match="it is read-only or a standby"):
        world.driver(also=lambda _connection, _rows: other.check()).batch(0, decision())


@pytest.mark.parametrize("hidden", [False, True], ids=["raised", "hidden"])
def test_connection_lost_in_also_costs_one_attempt(world: World, hidden: bool) -> None:
    called: list[None] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        called.append(None)
        if len(called) == 1:
            world.db.execute(
                "SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid]
            )
        with suppress(*([psycopg.OperationalError] if hidden else [])):
            connection.execute("SELECT 1")

    assert isinstance(world.driver(also=also).batch(0, decision()), Written)
    assert len(called) == 2


def test_lock_timeout_in_a_savepoint_of_also_costs_one_attempt(world: World) -> None:
    called: list[None] = []

    def also(connection: psycopg.Connection, _rows: object) -> None:
        called.append(None)
        with connection.transaction():
            if len(called) == 1:
                connection.execute("DO $$ BEGIN RAISE 'busy' USING ERRCODE = '55P03'; END $$")

    assert isinstance(world.driver(also=also).batch(0, decision()), Written)
    assert len(called) == 2
    assert _batches(world.db) == 1


ROWS = [decision("", n) for n in range(6)] + [decision(f"m_{n}") for n in range(4)]


def test_batch_beyond_the_limit_writes_nothing_until_the_limit_is_raised(world: World) -> None:
    spark = world.driver(quarantine_limit=QuarantineLimit(share_from=10))
    spark.batch(0, decision("m_1"))
    before = contents(world.db)
    with pytest.raises(TooManyRefused, match=r"'payouts': batch 1: 6 of its 10 rows were refused"):
        spark.batch(1, *ROWS)
    assert contents(world.db) == before
    # A batch below the limit is not stopped by one that was above it.
    assert isinstance(spark.batch(1, *ROWS[1:8]), Written)

    again = world.driver(query_id=spark.query_id, quarantine_limit=QuarantineLimit(share=1))
    assert again.batch(2, *ROWS).counts.quarantined == 6


def test_bad_rows_below_the_limit_stop_nothing(driver: MakeDriver) -> None:
    counts = driver(quarantine_limit=QuarantineLimit(rows=6)).batch(0, *ROWS).counts
    assert (counts.entries, counts.quarantined) == (4, 6)


def _hide_an_error(connection: psycopg.Connection, _rows: object) -> None:
    with suppress(psycopg.Error):
        connection.execute("SELECT 1 / 0")


def _end_it(connection: psycopg.Connection, _rows: object) -> None:
    connection.execute("ROLLBACK")


def _commit(connection: psycopg.Connection, _rows: object) -> None:
    connection.commit()


def _roll_back_in_a_block(connection: psycopg.Connection, _rows: object) -> None:
    with connection.transaction():
        connection.rollback()


def _turn_transactions_off(connection: psycopg.Connection, _rows: object) -> None:
    connection.autocommit = False


ENDINGS = (_hide_an_error, _end_it, _commit, _roll_back_in_a_block, _turn_transactions_off)


@pytest.mark.parametrize("also", ENDINGS)
def test_also_that_breaks_the_transaction_is_no_written_batch(
    world: World, also: Callable[[psycopg.Connection, object], None]
) -> None:
    spark = world.driver(also=also)
    with pytest.raises(CompanionFailed, match=r"`also` hid an error .* of batch 0 itself"):
        spark.batch(0, decision())
    assert world.db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (0,)
    healed = world.driver(query_id=spark.query_id)
    assert isinstance(healed.batch(0, decision()), Written)


def test_error_in_a_statement_of_also_is_raised_unchanged(driver: MakeDriver) -> None:
    def also(connection: psycopg.Connection, _rows: object) -> None:
        connection.execute("SELECT %s", [])

    with pytest.raises(psycopg.ProgrammingError, match="placeholder"):
        driver(also=also).batch(0, decision())


def test_also_may_use_a_savepoint_around_what_may_fail(driver: MakeDriver) -> None:
    def also(connection: psycopg.Connection, _rows: object) -> None:
        with suppress(psycopg.Error), connection.transaction():
            connection.execute("SELECT 1 / 0")

    assert isinstance(driver(also=also).batch(0, decision()), Written)


class _Callable:
    def __call__(self, _connection: object, _rows: object, batch: BatchContext) -> None:
        seen.append(batch)


def _three(_connection: object, _rows: object, batch: BatchContext) -> None:
    seen.append(batch)


def _optional(_connection: object, _rows: object, batch: BatchContext | None = None) -> None:
    seen.append(batch)


def _named(_connection: object, _rows: object, batch: BatchContext, *, table: str) -> None:
    seen.append((batch, table)[0])


seen: list[object] = []


@pytest.mark.parametrize(
    "also",
    [_three, _optional, _Callable(), partial(_named, table="t"), _Callable().__call__],
    ids=["function", "optional", "object", "partial", "method"],
)
def test_also_gets_the_batch_as_the_ledger_has_it(world: World, also: Any) -> None:
    seen.clear()
    spark = world.driver(also=also)
    written = spark.batch(0, decision("m_1"), decision(""), decision("m_1"))
    [batch] = seen
    assert batch == BatchContext(
        *("payouts", spark.query_id, spark.run_id, 1, 0, written.batch_no, written.counts)
    )
    assert isinstance(batch, BatchContext)
    assert batch.counts == Counts(3, 1, 1, 0, 0, 1)


def test_also_without_a_third_parameter_is_called_as_before(world: World) -> None:
    called: list[int] = []

    def default(_connection: object, _rows: object, table: str = "t") -> None:
        called.append(len(table))

    forms: list[Any] = [
        lambda *values: called.append(len(values) - 1),
        lambda _connection, _rows, into=called: into.append(1),
        partial(lambda _own, _connection, _rows: called.append(1), "own"),
        default,
    ]
    for also in forms:
        world.driver(stream=f"payouts{len(called)}", also=also).batch(0, decision())
    assert called == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "also",
    [lambda: None, lambda _only: None, lambda _a, _b, _c, _d: None, "also"],
    ids=["none", "one", "four", "text"],
)
def test_also_that_cannot_be_called_is_refused_at_once(also: Any) -> None:
    with pytest.raises(ValueError, match=r"^also "):
        OutboxSink("host=/nowhere", stream="payouts", also=also)


class _NoSuchAccount(AccessDenied):
    pass


class _Busy(Transient):
    pass


def test_permanent_error_of_also_is_raised_unchanged_at_once(world: World) -> None:
    called: list[None] = []

    def also(_connection: object, _rows: object) -> None:
        called.append(None)
        raise _NoSuchAccount("account 17 does not exist")

    with pytest.raises(_NoSuchAccount, match=r"^account 17 does not exist$"):
        world.driver(also=also).batch(0, decision())
    assert len(called) == 1
    assert _batches(world.db) == 0


def test_transient_error_of_also_is_tried_again(world: World) -> None:
    called: list[None] = []

    def also(_connection: object, _rows: object) -> None:
        called.append(None)
        if len(called) < 3:
            raise _Busy("locked")

    assert isinstance(world.driver(also=also).batch(0, decision()), Written)
    assert len(called) == 3
    assert _batches(world.db) == 1


def test_transient_error_of_also_is_raised_after_the_deadline(world: World) -> None:
    called: list[None] = []

    def also(_connection: object, _rows: object) -> None:
        called.append(None)
        raise _Busy("locked") from KeyError("why")

    spark = world.driver(also=also, timeouts=replace(PATIENT, deadline_seconds=1))
    with pytest.raises(_Busy, match=r"^locked$") as raised:
        spark.batch(0, decision())
    assert isinstance(raised.value.__cause__, KeyError)
    assert len(called) > 1
    assert _batches(world.db) == 0
    assert isinstance(world.driver(query_id=spark.query_id).batch(0, decision()), Written)


QUERY, OTHER = UUID(int=1), UUID(int=2)
IN_SPARK = {"OutboxSink"}
"""Run by tests/spark/test_outbox_sink_example.py."""


def _checkpoint(folder: Path) -> str:
    """What Spark has written after two batches."""
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    for log in ("offsets", "commits"):
        (folder / log).mkdir()
        for number in (0, 1):
            (folder / log / str(number)).write_text("v1\n")
    return str(folder)


def _unreadable(folder: Path) -> str:
    """A folder where the file `metadata` cannot be read as one."""
    (folder / "metadata").mkdir(parents=True)
    return str(folder)


@pytest.fixture
def make_sink() -> Iterator[Callable[..., sink.OutboxSink]]:
    """Stands for `OutboxSink`: a short example leaves its connection to the end of the program."""
    made: list[sink.OutboxSink] = []

    def make(*args: Any, **settings: Any) -> sink.OutboxSink:
        made.append(sink.OutboxSink(*args, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def names(dsn: str, make_sink: Callable[..., sink.OutboxSink], tmp_path: Path) -> dict[str, Any]:
    """What the names in the examples stand for."""
    rows = table(decision("m_1"), decision("m_2"))
    nameless = rows.set_column(0, "subject", pa.array([None, ""], SCHEMA.field("subject").type))
    return {
        **{name: getattr(sink, name) for name in sink.__all__},
        "OutboxSink": make_sink,
        "pa": pa,
        "Identity": Identity,
        "dsn": dsn,
        "read_only_dsn": f"{dsn} options='-c default_transaction_read_only=on'",
        "query_id": QUERY,
        "other_query_id": OTHER,
        "first_run": UUID(int=3),
        "second_run": UUID(int=4),
        "decisions": rows,
        "without_subjects": nameless,
        "checkpoint_with_two_batches": _checkpoint(tmp_path),
        "unreadable_checkpoint": _unreadable(tmp_path / "unreadable"),
    }


@pytest.mark.parametrize("name", sorted(set(sink.__all__) - IN_SPARK))
def test_example_of(name: str, names: dict[str, Any]) -> None:
    public = getattr(sink, name)
    assert public.__doc__
    test = doctest.DocTestParser().get_doctest(public.__doc__, names, name, None, 0)
    assert test.examples, f"{name} has no example"
    texts: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=texts.append)
    assert not texts, "".join(texts)
