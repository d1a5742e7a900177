"""A column as an array literal is read back by Postgres as the column."""

from datetime import UTC, datetime

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sink.rows.array_literals import array_literal

_text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | _text | st.sampled_from(["NULL", "{}", ",", '"', "\\", " x "])))
def test_texts(db: psycopg.Connection, texts: list[str | None]) -> None:
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
    db: psycopg.Connection, values: list[object], type_: pa.DataType, array: str
) -> None:
    db.execute("SET timezone = 'UTC'")
    literal = array_literal(pa.chunked_array([pa.array(values, type_)]))
    assert db.execute(f"SELECT %s::{array}".encode(), [literal]).fetchone() == (values,)
