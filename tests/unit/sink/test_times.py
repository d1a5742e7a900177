"""Times by column are the times that are read one by one."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.canonical import NotCanonical, rfc3339_from_micros
from holdfast.sink.rows.json_columns import times_of
from holdfast.sink.rows.postgres_text import array_literal, csv

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first and the last moment that have a year of four digits."""

_ends = st.sampled_from([FIRST - 1, FIRST, -1_000_000, -1, 0, 1, 999_999, 10**6, LAST, LAST + 1])
_micros = st.none() | _ends | st.integers(-(2**63), 2**63 - 1) | st.integers(FIRST, LAST)
_whole = st.integers(FIRST // 10**6, LAST // 10**6).map(lambda second: second * 10**6)


def _one(micros: int | None) -> str | None:
    try:
        return None if micros is None else rfc3339_from_micros(micros)
    except (OverflowError, NotCanonical):
        return None


@given(st.lists(_micros | _whole))
def test_every_moment_is_written_as_if_it_were_alone(micros: list[int | None]) -> None:
    texts, odd = times_of(pa.array(micros, pa.timestamp("us", "UTC")))
    assert texts.to_pylist() == [_one(each) for each in micros]
    assert odd.tolist() == [each is not None and _one(each) is None for each in micros]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_time_in_a_literal_or_in_csv_is_utc(zone: str) -> None:
    moments = [datetime(2026, 11, 2, 12, 15, 0, 5, UTC), None, datetime(1, 1, 1, tzinfo=UTC)]
    column = pa.chunked_array([pa.array(moments, pa.timestamp("us", zone))])
    first, last = '"2026-11-02 12:15:00.000005Z"', '"0001-01-01 00:00:00.000000Z"'
    assert array_literal(column) == f"{{{first},NULL,{last}}}"
    text = b"".join(csv(pa.table({"n": [1, 2, 3], "at": column})))
    assert text.decode() == f"1,{first}\n2,\n3,{last}\n"
