"""A large batch leaves its pages to the server's writers, instead of writing each out itself."""

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest

from sink.batch import BatchInput, prepare
from sink.driver_path import InDriver
from sink.writer import Writer
from tests.benchmarks.sink.rows import decisions
from tests.support.waiting import eventually

ROWS, SUBJECTS = 60_000, 1_000
"""About 24 MB of entries; one COPY has 16 MB of pages before it has to use them again."""

_BULK = """
SELECT sum(extends) AS extends, sum(reuses) AS reuses
FROM pg_stat_io WHERE object = 'relation' AND context = 'bulkwrite'
"""


def _bulk(db: psycopg.Connection) -> tuple[int, int]:
    extends, reuses = db.execute(_BULK).fetchone() or (0, 0)
    return extends, reuses


@pytest.fixture
def write(dsn: str, db: psycopg.Connection) -> Callable[[int], None]:
    if db.info.server_version < 160000:
        pytest.skip("pg_stat_io came with Postgres 16")

    def one(rows: int) -> None:
        writer = Writer(dsn, "bench")
        writer.begin_run(uuid4(), uuid4())
        writer.write(0, InDriver(prepare(BatchInput(decisions(0, rows, SUBJECTS)))))
        writer.close()

    return one


def test_a_large_batch_does_not_use_its_pages_again(
    write: Callable[[int], None], db: psycopg.Connection
) -> None:
    extends, reuses = _bulk(db)
    write(ROWS)
    # The backend tells what it did when it ends.
    eventually(lambda: _bulk(db)[0] > extends)
    assert _bulk(db)[1] == reuses
    [count] = db.execute("SELECT count(*) FROM holdfast.entry").fetchone() or (0,)
    assert count == ROWS
