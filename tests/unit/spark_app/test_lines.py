import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_app.input import lines as module
from spark_app.input.lines import parse_lines

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


def test_plain_lines_are_read_together() -> None:
    """The fast reader must not have become one that always gives up."""
    assert module._read_all(_array(_line(), _line(note=[1, {"x": "Inf"}]))) is not None
