"""A refused row as an entry again: what is taken, and what is refused in which words."""

import json
from typing import Any

import pytest

from holdfast.sink.requeue import _prepared, stream_of
from holdfast.sink.rows.row_text import Unfit
from tests.support.dispatch.sender import BLOCK

GOOD: dict[str, Any] = {
    "subject": "m_9",
    "type": BLOCK,
    "key": ["payout-hold/v1", "m_9", "2026-11-02T12:15:00Z", "block", "1"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"merchant_id": "m_9", "tags": [{"a": None}], "empty": {}, "on": True},
}


def _body(row: dict[str, Any]) -> dict[str, Any]:
    [entry] = _prepared(json.dumps(row)).entries.to_pylist()
    body: dict[str, Any] = json.loads(f"{entry['head']}1{entry['tail']}")
    return body


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"priority": 3, "traceparent": None},
        {"data": {}},
        {"data": {"at": "2026-11-02T12:15:00Z", "big": 2**53 - 1}},
        {"data": {"text": 'a\n"\\é\u2028'}},
        {"occurred_at": "2026-11-02T14:15:00.000000+02:00"},
    ],
)
def test_row_becomes_the_entry_that_it_says(change: dict[str, Any]) -> None:
    body = _body(GOOD | change)
    assert body["timestamp"] == "2026-11-02T12:15:00Z"
    assert body["data"] == (GOOD | change)["data"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (GOOD | {"data": {"x": 1.5}}, "1.5 is not whole"),
        (GOOD | {"data": {"x": float("nan")}}, "NaN is not whole"),
        (GOOD | {"data": [1]}, "data is not a JSON object"),
        (GOOD | {"data": None}, "bad_data: data is null"),
        (GOOD | {"data": {"x": 2**53}}, "bad_data"),
        (GOOD | {"data": {"x": 2**70}}, "1180591620717411303424 is beyond 2.53-1"),
        (GOOD | {"data": {"x": 10**4000 // 9}}, "1{40}... is beyond 2.53-1"),
        (GOOD | {"data": {"x": -(2**63) - 1}}, "-9223372036854775809 is beyond"),
        (GOOD | {"data": {"x": [1, "a"]}}, "several types"),
        (GOOD | {"data": {"x": [True, 1]}}, "several types"),
        (GOOD | {"data": {"x": [{}, 1]}}, "several types"),
        (GOOD | {"data": {"x": [{"a": 1}, {"b": 1}]}}, "differ in their members"),
        (GOOD | {"data": {"x": "\ud800"}}, "lone surrogate"),
        (GOOD | {"data": {"\udfff": 1}}, "lone surrogate"),
        (GOOD | {"subject": "m\ud800"}, "lone surrogate"),
        (GOOD | {"data": {"x": "\x00"}}, "bad_data"),
        (GOOD | {"occurred_at": "yesterday"}, "RFC 3339"),
        (GOOD | {"occurred_at": "2026-02-31T00:00:00Z"}, "RFC 3339"),
        (GOOD | {"occurred_at": 569_000_000_000_000_000}, "RFC 3339"),
        (GOOD | {"occurred_at": "9999-12-31T23:59:59-23:59"}, "years 1 to 9999"),
        (GOOD | {"occurred_at": "0001-01-01T00:00:00+23:59"}, "years 1 to 9999"),
        (GOOD | {"occurred_at": None}, "occurred_at is null"),
        (GOOD | {"subject": ""}, "bad_subject"),
        (GOOD | {"subject": 5}, "subject is not a string"),
        (GOOD | {"type": ["a"]}, "type is not a string"),
        (GOOD | {"traceparent": False}, "traceparent is not a string"),
        (GOOD | {"subject": None}, "bad_subject"),
        (GOOD | {"type": "a b"}, "bad_type"),
        (GOOD | {"key": "m_9"}, "not a list"),
        (GOOD | {"key": [1]}, "key is not a list of strings"),
        (GOOD | {"key": [None]}, "key is not a list of strings"),
        (GOOD | {"key": []}, "bad_key"),
        (GOOD | {"priority": True}, "priority is not a whole number"),
        (GOOD | {"priority": 2**31}, "priority is not a whole number"),
        (GOOD | {"priority": "1"}, "priority is not a whole number"),
        (GOOD | {"priority": -1}, "bad_data"),
        (GOOD | {"amount": 1}, "unknown: amount"),
        ({name: GOOD[name] for name in ("subject", "type", "key")}, "missing here: data"),
        ([GOOD], "not a JSON object"),
        ("text", "not a JSON object"),
    ],
)
def test_row_that_is_no_entry_is_refused_in_words(row: object, complaint: str) -> None:
    with pytest.raises(Unfit, match=complaint):
        _prepared(json.dumps(row))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON: it cannot be read from line 1, column 1 on"),
        ('{"subject":\n x}', "not JSON: it cannot be read from line 2, column 2 on"),
        ("\ufeff{}", "not JSON: it cannot be read from line 1, column 1 on"),
        ("{", "not JSON"),
        ('{"data": {"a": 1, "a": 2}}', "a member twice"),
        ("[" * 100_000, "too deeply"),
        ("9" * 5000, "9{40}... is beyond 2.53-1"),
        ("[" * 500 + "9" * 5000, "beyond"),
    ],
)
def test_text_that_is_no_row_is_refused_in_words(text: str, complaint: str) -> None:
    with pytest.raises(Unfit, match=complaint):
        _prepared(text)


def test_requeued_rows_get_a_stream_name_that_fits() -> None:
    assert stream_of("payouts") == "payouts.requeue"
    names = [stream_of("s" * 55), stream_of("s" * 56), stream_of("s" * 63)]
    assert all(len(name) <= 63 for name in names)
    assert len(set(names)) == 3
