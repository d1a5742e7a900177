"""Round trips of a batch, plans of its statements, and values that it copies."""

import os
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import ClientCursor

from holdfast.sink import Written
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.copy_formats import HEADER, TRAILER, array_literal, moments, rows, uuids
from holdfast.sink.transaction.database import statement
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.write_batch import add_keys
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


PLAN_SUBJECTS = KEYS = 250_000

LATEST = KEYS // 100
SOME_KEYS = f"{{{UUID(int=1)},{UUID(int=2)}}}"

EXPECTED: list[tuple[str, dict[str, Any], set[str]]] = [
    ("subjects/lock_subjects", {"names": '{"m_1","m_250000","m_250001"}'}, {"uq_subject_name"}),
    (
        "keys/known_keys",
        {"batch_no": LATEST, "keys": SOME_KEYS, "contents": SOME_KEYS},
        {"pk_entry_key"},
    ),
    (
        "subjects/advance_subjects",
        {
            "stream": "payouts",
            "ids": "{1,2}",
            "sequences": "{1,2}",
            "types": "{a,b}",
            "times": "{2026-11-02,2026-11-02}",
            "written_at": "2026-11-02",
        },
        {"pk_subject", "pk_transition"},
    ),
    ("subjects/read_transitions", {"ids": "{1,2}", "stream": "payouts"}, {"pk_transition"}),
    (
        "rows/compare_keys",
        {"batch_nos": [LATEST], "keys": SOME_KEYS, "contents": SOME_KEYS},
        {"ix_entry_key_batch_no", "pk_entry_key"},
    ),
]


def _fill(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO holdfast.subject (name) SELECT 'm_' || n FROM generate_series(1, %s) AS n",
        [PLAN_SUBJECTS],
    )
    db.execute(
        "INSERT INTO holdfast.entry_key (key, content, batch_no)"
        " SELECT gen_random_uuid(), gen_random_uuid(), n / 100 FROM generate_series(1, %s) AS n",
        [KEYS],
    )
    db.execute(
        "INSERT INTO holdfast.transition SELECT id, 'payouts', 'a', now(), now()"
        " FROM holdfast.subject"
    )
    db.execute("VACUUM ANALYZE holdfast.subject, holdfast.entry_key, holdfast.transition")


@pytest.mark.rest
def test_statements_use_their_indexes(db: psycopg.Connection) -> None:
    _fill(db)
    for name, values, indexes in EXPECTED:
        plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), values).fetchall()
        plan = "\n".join(line for (line,) in plan_lines)
        assert {index for index in indexes if index in plan} == indexes, plan
        assert "Seq Scan on subject" not in plan
        assert "Seq Scan on entry_key" not in plan
        assert "Seq Scan on transition" not in plan


TABLE = """
    CREATE TEMPORARY TABLE IF NOT EXISTS copied (
        number bigint, name text, key uuid, at timestamptz, small smallint, trace text, body bytea
    ) ON COMMIT DROP
"""

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
_moment = st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001 - hypothesis wants naive bounds
    datetime(9999, 12, 30),  # noqa: DTZ001 - hypothesis wants naive bounds
    timezones=st.just(UTC),
)
_row = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    _text,
    st.uuids(),
    _moment,
    st.integers(-(2**15), 2**15 - 1),
    st.none() | _text,
    _text.map(str.encode),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_row, min_size=1, max_size=5), st.integers(0, 2))
def test_rows_arrive_as_they_are(
    db: psycopg.Connection, given_rows: list[Any], offset: int
) -> None:
    number, name, key, at, small, trace, body = zip(*given_rows, strict=True)
    # A slice, as a column that was cut out of a larger one.
    digits = pa.array([*[UUID(int=0).hex] * offset, *(each.hex for each in key)]).slice(offset)
    columns = [
        np.array(number, ">i8"),
        pa.array(name, pa.large_string()),
        uuids(digits),
        moments(pa.array(at, pa.timestamp("us", "UTC"))),
        np.array(small, ">i2"),
        pa.array(trace, pa.string()),
        pa.array(body, pa.large_binary()),
    ]
    with db.transaction():
        db.execute("SET LOCAL timezone = 'UTC'")
        db.execute(TABLE)
        with db.cursor().copy("COPY copied FROM STDIN (FORMAT binary)") as copy:
            for piece in (HEADER, rows(columns), TRAILER):
                copy.write(piece)
        result_rows = db.execute("SELECT * FROM copied").fetchall()
        db.execute("DROP TABLE copied")
    assert result_rows == given_rows


_any_text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | _any_text | st.sampled_from(["NULL", "{}", ",", '"', "\\", " x "])))
def test_any_texts(db: psycopg.Connection, texts: list[str | None]) -> None:
    literal = array_literal(pa.chunked_array([pa.array(texts, pa.large_string())]))
    assert db.execute("SELECT %s::text[]", [literal]).fetchone() == (texts,)


@pytest.mark.parametrize(
    ("values", "type_", "array"),
    [
        ([1, None, -(2**62)], pa.int64(), "bigint[]"),
        ([datetime(1, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC"), "timestamptz[]"),
        (
            [datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
            pa.timestamp("us", "UTC"),
            "timestamptz[]",
        ),
    ],
)
def test_numbers_and_moments(
    world: World, values: list[object], type_: pa.DataType, array: str
) -> None:
    world.db.execute("SET timezone = 'UTC'")
    literal = array_literal(pa.chunked_array([pa.array(values, type_)]))
    assert world.db.execute(f"SELECT %s::{array}".encode(), [literal]).fetchone() == (values,)
