"""A large batch leaves its pages to the server's writers, instead of writing each out itself."""

from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.benchmarks.sink.rows import decisions
from tests.support.waiting import eventually

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
