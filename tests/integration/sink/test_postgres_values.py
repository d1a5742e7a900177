"""What is written in the formats of Postgres is what Postgres reads."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.sink.rows.copy_binary import HEADER, TRAILER, moments, rows, uuids
from holdfast.sink.rows.postgres_text import array_literal
from tests.support.world import World

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
