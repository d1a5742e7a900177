"""JSON lines as events."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark_app.input import lines as module
from holdfast.spark_app.input.lines import parse_lines, parse_time, parse_times

GOOD = {
    "event_id": "e917",
    "merchant_id": "m_482",
    "type": "payout_submitted",
    "amount_minor": -1_800_000,
    "currency": "USD",
    "occurred_at": "2026-11-02T12:00:00Z",
}


def _line(**changed: Any) -> bytes:
    return json.dumps(GOOD | changed).encode()


def _array(*lines: bytes) -> pa.Array:
    return pa.array(lines, pa.binary())


BAD_LINES = {
    b'{"event_id":': "malformed",
    b"hello": "malformed",
    b"[]": "malformed",
    b'["' + _line() + b'"]': "malformed",
    b"[" + _line() + b"]": "malformed",
    b'"text"': "malformed",
    b"5": "malformed",
    b"null": "malformed",
    _line() + _line(): "malformed",
    _line() + b" // sent twice": "malformed",
    b'{"event_id":"\xff"}': "malformed",
    b'\xef\xbb\xbf{"event_id":"e"}': "malformed",
    b'{"event_id":"e","event_id":"e"}': "malformed",
    b'{"x":' + b"[" * 100_000: "malformed",
    b'{"amount_minor":-' + b"1" * 5_000 + b"}": "amount_out_of_range",
    _line(event_id=5): "bad_text",
    _line(event_id={}): "bad_text",
    _line(merchant_id=True): "bad_text",
    _line(type=[]): "bad_text",
    _line(merchant_id="m\ud800"): "bad_text",
    _line(currency=840): "wrong_currency",
    _line(amount_minor="5"): "bad_amount",
    _line(amount_minor="many"): "bad_amount",
    _line(amount_minor=1.5): "bad_amount",
    _line(amount_minor=1e3): "bad_amount",
    _line(amount_minor=float("nan")): "bad_amount",
    _line(amount_minor=float("inf")): "bad_amount",
    _line(amount_minor=False): "bad_amount",
    _line(amount_minor=2**63): "amount_out_of_range",
    _line(amount_minor=-(10**30)): "amount_out_of_range",
    _line(occurred_at=1_793_620_800): "bad_time",
    _line(occurred_at="2026-11-02T12:00:00"): "bad_time",
    _line(occurred_at="2026-02-30T12:00:00Z"): "bad_time",
    _line(occurred_at="noon\ud800"): "bad_time",
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items(), ids=lambda x: repr(x)[:60])
def test_each_bad_line_has_its_reason(line: bytes, reason: str) -> None:
    parsed = parse_lines(_array(line))
    assert {at: fault.reason.value for at, fault in parsed.faults.items()} == {0: reason}
    assert parsed.faults[0].detail


def test_a_bad_line_takes_no_other_with_it() -> None:
    bad = list(BAD_LINES)
    lines = [line for each in bad for line in (_line(), each)] + [_line()] * 1_000
    parsed = parse_lines(_array(*lines))
    assert sorted(parsed.faults) == list(range(1, 2 * len(bad), 2))
    good = [row for at, row in enumerate(parsed.events.to_pylist()) if at not in parsed.faults]
    assert len(good) == len(lines) - len(bad)
    assert {(row["event_id"], row["amount_minor"]) for row in good} == {("e917", -1_800_000)}


def test_a_refused_line_is_kept_as_it_was() -> None:
    parsed = parse_lines(_array(_line(), b"  ", b' {"event_id": 1.0 } ', b'{"event_id":"\xff"}'))
    assert parsed.text(1) == ' {"event_id": 1.0 } '
    assert parsed.text(2) == '{"event_id":"\\xff"}'


def test_blank_lines_and_unknown_fields_are_ignored() -> None:
    more = _line(note={"by": ["x", {"y": None}]}, Event_id="other")
    parsed = parse_lines(_array(b"", b" \t\r", b"\t" + more + b"\r", b""))
    assert not parsed.faults
    assert parsed.events.to_pylist() == parse_lines(_array(_line())).events.to_pylist()


def test_missing_and_null_fields_are_null() -> None:
    parsed = parse_lines(_array(b"{}", json.dumps(dict.fromkeys(GOOD)).encode()))
    assert not parsed.faults
    assert all(value is None for row in parsed.events.to_pylist() for value in row.values())


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**4000),
    st.floats(),
    st.text(),
    st.sampled_from(["a Inf b", "}{", "\x00", "2026-11-02T12:00:00Z"]),
)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
_OBJECTS = st.dictionaries(
    st.one_of(st.sampled_from([*GOOD, "note"]), st.text(max_size=3)), _VALUES, max_size=6
).map(json.dumps)
_TOKENS = st.lists(
    st.sampled_from(
        ["{", "}", '"event_id"', '"note"', ":", ",", "1", "01", "-Inf", "NaN", '"x"', "[", "]", " "]
    ),
    max_size=8,
).map("".join)
_LINES = st.one_of(_OBJECTS, _TOKENS, _TOKENS.map(lambda text: f'{{"note":{text}}}'))


@given(st.lists(_LINES.map(str.encode), min_size=1, max_size=3))
@settings(max_examples=500)
def test_lines_read_together_are_the_lines_read_one_by_one(lines: list[bytes]) -> None:
    together = module._read_all(_array(*lines))
    if together is not None:
        one_by_one = module._read_each(_array(*lines))
        assert one_by_one.faults == {}
        assert together.table.equals(one_by_one.table)


_SPLIT = st.one_of(st.sampled_from([_line(), _line(event_id="e2")]), _OBJECTS.map(str.encode))
_BREAKS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b" "])


@pytest.mark.rest
@given(st.lists(_SPLIT, min_size=1, max_size=4), st.lists(_BREAKS, min_size=5), st.data())
@settings(max_examples=500)
def test_values_with_line_ends_are_read_together_as_alone(
    objects: list[bytes], breaks: list[bytes], data: st.DataObject
) -> None:
    """Objects and halves of them, spread over values in any way."""
    content = b"".join(each + sep for each, sep in zip(objects, breaks, strict=False))
    places = st.integers(0, len(content)) | st.sampled_from(
        [at for at, byte in enumerate(content) if byte in b",{\n\r"]
    )
    at = sorted({0, len(content), *data.draw(st.lists(places, max_size=3))})
    values = [content[a:b] for a, b in itertools.pairwise(at)]
    values = [each for each in values if each.strip()]
    together = parse_lines(_array(*values))
    alone = [parse_lines(_array(value)) for value in values]
    assert together.events.to_pylist() == [row for each in alone for row in each.events.to_pylist()]
    assert together.faults == {i: each.faults[0] for i, each in enumerate(alone) if each.faults}


def test_record_is_not_completed_by_the_next_one() -> None:
    whole, half = _line(), _line(event_id="e2").partition(b", ")
    values = [whole + b"\n" + half[0] + b",", half[2]]
    for parsed in (parse_lines(_array(*values)), *(parse_lines(_array(each)) for each in values)):
        assert {fault.reason.value for fault in parsed.faults.values()} == {"malformed"}
        assert len(parsed.faults) == parsed.events.num_rows
    pretty = json.dumps(GOOD, indent=1).encode()
    assert parse_lines(_array(pretty, whole, pretty)).events.to_pylist() == (
        parse_lines(_array(whole)).events.to_pylist() * 3
    )


def test_plain_lines_are_read_together() -> None:
    """The fast reader must not have become one that always gives up."""
    assert module._read_all(_array(_line(), _line(note=[1, {"x": "Inf"}]))) is not None


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
    assert parse_time(text) == micros
    assert parse_times(pa.array([text])).cast(pa.int64()).to_pylist() == [micros]


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
    assert parse_time(text) is None
    column = parse_times(pa.array([text, "2026-11-02T12:00:00Z", None]))
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
    column = parse_times(pa.array(texts, pa.string()))
    assert column.cast(pa.int64()).to_pylist() == [parse_time(text) for text in texts]


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_text_of_a_moment_is_that_moment(moment: datetime) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_time(moment.isoformat()) == (moment - epoch) // timedelta(microseconds=1)
