"""Kafka records as events: no record is left out, and a refused one is named by its place."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import KeyRule
from holdfast.spark_app.input.lines import parse_lines
from holdfast.spark_app.input.records import RecordParser
from holdfast.spark_app.input.validate import validate

POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')

SCHEMA = pa.schema(
    {
        "value": pa.binary(),
        "key": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)


def _event(number: int, merchant: str = "m_1", **other: Any) -> bytes:
    row = {
        "event_id": f"e{number}",
        "merchant_id": merchant,
        "type": "payout_submitted",
        "amount_minor": number,
        "currency": "USD",
        "occurred_at": "2026-11-02T12:00:00Z",
    }
    return json.dumps(row | other).encode()


def _read(
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    rule: KeyRule = KeyRule.IGNORED,
) -> tuple[list[str], list[dict[str, str]]]:
    """The ids of the accepted events, and the refused rows."""
    count = len(values)
    columns = [
        values,
        keys or [None] * count,
        ["pay"] * count,
        [3] * count,
        range(100, 100 + count),
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
    good, refused = validate(RecordParser(parse_lines, rule)(batch), POLICY)
    return good["event_id"].to_pylist(), refused.to_pylist()


def test_a_refused_record_is_named_by_topic_partition_and_offset() -> None:
    good, refused = _read([_event(1), b"{", _event(2), _event(3, amount_minor="5")])
    assert good == ["e1", "e2"]
    assert [(row["reason"], row["detail"].partition(":")[0]) for row in refused] == [
        ("malformed", "pay, partition 3, offset 101"),
        ("bad_amount", "pay, partition 3, offset 103"),
    ]
    assert refused[0]["row"] == "{"


def test_a_record_without_a_value_is_refused_and_moves_no_other() -> None:
    good, refused = _read([None, _event(1), b"", b" \n", _event(2, currency="EUR"), None])
    assert good == ["e1"]
    assert {row["detail"].partition(":")[0][-3:]: row["reason"] for row in refused} == {
        "104": "wrong_currency",
        **dict.fromkeys(("100", "102", "103", "105"), "malformed"),
    }
    assert [row["row"] for row in refused if "tombstone" in row["detail"]] == ["null", "null"]


def test_key_is_checked_only_where_that_is_asked_for() -> None:
    values: list[bytes | None] = [_event(1), _event(2), _event(3), _event(4, "é"), b"{"]
    keys = [b"m_1", b"m_2", None, "é".encode(), b"x"]
    good, refused = _read(values, keys)
    assert (good, len(refused)) == (["e1", "e2", "e3", "e4"], 1)
    good, refused = _read(values, keys, KeyRule.MERCHANT_ID)
    assert good == ["e1", "e4"]
    assert [row["reason"] for row in refused] == ["bad_key", "bad_key", "malformed"]
    assert "'m_2'" in refused[0]["detail"]
    assert "no key" in refused[1]["detail"]


def test_a_key_that_is_not_text_is_shown_and_refused() -> None:
    _, [refused] = _read([_event(1)], [b"\xff\x00"], KeyRule.MERCHANT_ID)
    assert refused["reason"] == "bad_key"
    assert "xff" in refused["detail"]


_VALUES = st.one_of(
    st.none(),
    st.sampled_from([b"", b" ", b"\n" * 99, b"{", b"[]", b"\xff", b"{}"]),
    st.integers(0, 99).map(_event),
)


@given(st.lists(_VALUES, max_size=12))
def test_every_record_is_an_event_or_is_refused_under_its_own_offset(
    values: list[bytes | None],
) -> None:
    good, refused = _read(values)
    assert len(good) + len(refused) == len(values)
    offsets = [int(row["detail"].partition(":")[0].rpartition(" ")[2]) - 100 for row in refused]
    assert [
        f"e{json.loads(v or b'0')['amount_minor']}"
        for n, v in enumerate(values)
        if n not in offsets
    ] == good


@pytest.mark.parametrize("rule", KeyRule)
def test_no_records_are_no_events(rule: KeyRule) -> None:
    assert _read([], [], rule) == ([], [])
