"""What a batch costs the server: waits, pages, keys."""

import os
import tempfile
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from holdfast.sink import Written
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.keys import add_keys
from holdfast.sink.transaction.writer import Writer
from tests.benchmarks.sink.rows import decisions
from tests.support.dispatch.sender import decision, table
from tests.support.job.driver import Driver
from tests.support.waiting import eventually
from tests.support.world import World


def _round_trips(spark: Driver, batch_id: int, *rows: dict[str, object]) -> int:
    """Write a batch and return how often it waited; a COPY waits at its start and at its end."""
    connection = spark.sink._writer._connection
    assert connection
    with tempfile.TemporaryFile() as trace:
        connection.pgconn.trace(trace.fileno())
        assert isinstance(spark.batch(batch_id, *rows), Written)
        connection.pgconn.untrace()
        trace.seek(0, os.SEEK_SET)
        lines = trace.read().splitlines()
    return sum(b"ReadyForQuery" in line or b"CopyInResponse" in line for line in lines)


@pytest.mark.parametrize(("rows", "most"), [(0, 8), (1, 16), (30, 16), (31, 19)])
def test_small_batch_has_a_bounded_count_of_waits(world: World, rows: int, most: int) -> None:
    spark = world.driver(suppress_repeats=True)
    spark.batch(0, decision("m_0", 0))
    spark.batch(1, decision("m_0", 1))
    entries = [decision(f"m_{number + 1}", 2) for number in range(rows)]
    assert _round_trips(spark, 2, *entries) <= most


ROWS, SUBJECTS = 60_000, 1_000
"""About 24 MB of entries; one COPY has 16 MB of pages before it has to use them again."""

BULK = """
    SELECT sum(extends), sum(reuses) FROM pg_stat_io
    WHERE object = 'relation' AND context = 'bulkwrite'
"""
OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
        AND pid <> pg_backend_pid()
"""


def _bulk(db: psycopg.Connection) -> tuple[int, int]:
    extends, reuses = db.execute(BULK).fetchone() or (0, 0)
    return extends, reuses


def test_a_large_batch_does_not_use_its_pages_again(dsn: str, db: psycopg.Connection) -> None:
    if db.info.server_version < 160000:
        pytest.skip("pg_stat_io came with Postgres 16")
    extends, reuses = _bulk(db)
    with closing(Writer(dsn, "bench")) as writer:
        writer.begin_run(uuid4(), uuid4())
        writer.write(0, InDriver(prepare(BatchInput(decisions(0, ROWS, SUBJECTS)))))
    # A backend tells what it did before it is gone.
    eventually(lambda: db.execute(OTHERS).fetchone() == (0,))
    more_extends, more_reuses = _bulk(db)
    assert more_extends > extends
    assert more_reuses == reuses
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (ROWS,)


FIRST, SECOND = 1, 2


@pytest.mark.parametrize("expect_known", [False, True])
def test_known_key_is_found_and_others_are_recorded(world: World, *, expect_known: bool) -> None:
    def entries(*minors: int) -> object:
        rows = [decision(f"m_{n}", minor=minor) for n, minor in enumerate(minors)]
        return prepare(BatchInput(table(*rows))).arrived

    connection = psycopg.connect(
        world.db.info.dsn, password=world.db.info.password, autocommit=True
    )
    with connection, connection.transaction():
        first = add_keys(connection, entries(1, 1), FIRST, expect_known=expect_known)
        second = add_keys(connection, entries(1, 2, 3), SECOND, expect_known=expect_known)
    assert (first.fresh.tolist(), first.differing) == ([True, True], 0)
    assert (second.fresh.tolist(), second.differing) == ([False, False, True], 1)
    result = world.db.execute(
        "SELECT batch_no, count(*) FROM holdfast.entry_key GROUP BY 1 ORDER BY 1"
    )
    assert result.fetchall() == [(FIRST, 2), (SECOND, 1)]


def test_no_key_is_no_work(db: psycopg.Connection) -> None:
    none = prepare(BatchInput(table())).arrived
    connection = psycopg.connect(db.info.dsn, password=db.info.password, autocommit=True)
    with connection, connection.transaction():
        assert add_keys(connection, none, FIRST, expect_known=False).fresh.tolist() == []
