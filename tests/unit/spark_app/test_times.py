from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.input.times import parse, parse_column

NOON = 1_793_620_800_000_000  # 2026-11-02T12:00:00Z


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-11-02T12:00:00Z", NOON),
        ("2026-11-02t12:00:00z", NOON),
        ("2026-11-02 12:00:00Z", NOON),
        ("2026-11-02T12:00:00.5Z", NOON + 500_000),
        ("2026-11-02T12:00:00.123456789Z", NOON + 123_456),
        ("2026-11-02T17:30:00+05:30", NOON),
        ("2026-11-02T12:00:00-00:00", NOON),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
    ],
)
def test_rfc_3339_is_read_to_the_microsecond(text: str, micros: int) -> None:
    assert parse(text) == micros
    assert parse_column(pa.array([text])).cast(pa.int64()).to_pylist() == [micros]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-02T12:00:00",
        "2026-11-02",
        "2026-11-02T12:00Z",
        "2026-02-30T12:00:00Z",
        "2026-11-02T24:00:00Z",
        "2026-11-02T23:59:60Z",
        "2026-11-02T12:00:00+0530",
        "2026-11-02T12:00:00+24:00",
        "2026-11-02T12:00:00Z\n",
        " 2026-11-02T12:00:00Z",
        "\u0662026-11-02T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "yesterday",
        "",
        "1793620800",
    ],
)
def test_anything_else_is_no_time_and_costs_its_neighbours_nothing(text: str) -> None:
    assert parse(text) is None
    column = parse_column(pa.array([text, "2026-11-02T12:00:00Z", None]))
    assert column.cast(pa.int64()).to_pylist() == [None, NOON, None]


_VALID = st.builds(
    lambda moment, separator, digits, zone: (
        f"{moment:%Y-%m-%d}{separator}{moment:%H:%M:%S}{digits}{zone}"
    ),
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001 - the zone is drawn
    st.sampled_from("Tt "),
    st.sampled_from(["", ".1", ".000001", ".1234567"]),
    st.sampled_from(["Z", "z", "+00:00", "-07:30", "+23:59", ""]),
)


@given(st.lists(st.one_of(_VALID, st.text(max_size=5)), max_size=5))
def test_a_column_reads_as_its_texts_one_by_one(texts: list[str]) -> None:
    column = parse_column(pa.array(texts, pa.string()))
    assert column.cast(pa.int64()).to_pylist() == [parse(text) for text in texts]


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_text_of_a_moment_is_that_moment(moment: datetime) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert parse(moment.isoformat()) == (moment - epoch) // timedelta(microseconds=1)
