"""What is written in COPY's binary format is what Postgres reads."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sink.rows.copy_binary import HEADER, TRAILER, moments, rows, uuids

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
        found = db.execute("SELECT * FROM copied").fetchall()
        db.execute("DROP TABLE copied")
    assert found == given_rows
