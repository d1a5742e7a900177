import json
from typing import Any

import pyarrow as pa
import pytest

from holdfast.sink.contract.states import QuarantineReason
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.columns import parse_columns
from holdfast.spark_app.input.events import EVENT, Parsed
from holdfast.spark_app.input.lines import parse_lines
from holdfast.spark_app.input.validate import validate

POLICY = Policy.parse("""
version = "v1"
[[default]]
limit_minor = 100
release_level_minor = 100
[[merchant]]
id = "m_eur"
currency = "EUR"
limit_minor = 100
release_level_minor = 100
""")

NOON = 1_793_620_800_000_000
GOOD = {
    "event_id": "e1",
    "merchant_id": "m_1",
    "type": "payout_submitted",
    "amount_minor": 5,
    "currency": "USD",
    "occurred_at": NOON,
}


def _parsed(*rows: dict[str, Any]) -> Parsed:
    batch = pa.RecordBatch.from_pylist([GOOD | row for row in rows], schema=EVENT)
    return parse_columns(batch)


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"event_id": None}, "missing_event_id"),
    ({"event_id": ""}, "missing_event_id"),
    ({"event_id": " \u00a0\t"}, "missing_event_id"),
    ({"event_id": "e\x00"}, "bad_text"),
    ({"event_id": "e\x1f1"}, "bad_text"),
    ({"event_id": "e" * 257}, "bad_text"),
    ({"merchant_id": None}, "missing_merchant"),
    ({"merchant_id": "\t"}, "missing_merchant"),
    ({"merchant_id": "m\n1"}, "bad_text"),
    ({"type": None}, "missing_type"),
    ({"type": "t" * 129}, "bad_text"),
    ({"amount_minor": None}, "missing_amount"),
    ({"amount_minor": 10**15 + 1}, "amount_out_of_range"),
    ({"amount_minor": -(2**63)}, "amount_out_of_range"),
    ({"currency": None}, "wrong_currency"),
    ({"currency": "EUR"}, "wrong_currency"),
    ({"currency": "usd"}, "wrong_currency"),
    ({"merchant_id": "m_eur"}, "wrong_currency"),
    ({"occurred_at": None}, "missing_time"),
    ({"occurred_at": 946_684_799_999_999}, "time_out_of_range"),
    ({"occurred_at": 4_102_444_800_000_000}, "time_out_of_range"),
    ({"occurred_at": 2**63 - 1}, "time_out_of_range"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS, ids=lambda x: repr(x)[:50])
def test_bad_row_has_its_reason_alone(row: dict[str, Any], reason: str) -> None:
    events, refused = validate(_parsed({}, row, {"event_id": "e2"}), POLICY)
    assert events.column("event_id").to_pylist() == ["e1", "e2"]
    assert refused.column("reason").to_pylist() == [reason]
    assert refused.column("detail")[0].as_py()
    assert set(json.loads(refused.column("row")[0].as_py())) == set(GOOD)


def test_what_is_just_inside_passes() -> None:
    rows = [
        {"event_id": "\u00e9" * 256},
        {"merchant_id": "\U0001f600" * 256},
        {"type": "t" * 128},
        {"amount_minor": 10**15},
        {"amount_minor": -(10**15)},
        {"amount_minor": 0},
        {"occurred_at": 946_684_800_000_000},
        {"occurred_at": 4_102_444_799_999_999},
        {"merchant_id": "m_eur", "currency": "EUR"},
    ]
    events, refused = validate(_parsed(*rows), POLICY)
    assert refused.num_rows == 0
    assert events.num_rows == len(rows)
    assert all(column.null_count == 0 for column in events.columns)


def test_every_row_is_an_event_or_refused_once() -> None:
    rows = [row for row, _ in BAD_ROWS]
    events, refused = validate(_parsed(*rows, {}, *rows), POLICY)
    assert events.num_rows == 1
    assert refused.num_rows == 2 * len(rows)


def test_a_row_that_could_not_be_read_keeps_its_first_reason() -> None:
    line = b'{"event_id":"e1","merchant_id":null,"amount_minor":1.5}'
    _, refused = validate(parse_lines(pa.array([line], pa.binary())), POLICY)
    assert refused.column("reason").to_pylist() == ["bad_amount"]


def test_refused_rows_are_text_that_postgres_takes() -> None:
    lines = [b'{"event_id":"\xff\x00', b'{"merchant_id":"\x00', b"x" * 1_000_000]
    _, refused = validate(parse_lines(pa.array(lines, pa.binary())), POLICY)
    texts = refused.column("row").to_pylist()
    assert refused.column("reason").to_pylist() == ["malformed"] * 3
    assert not any("\x00" in text for text in texts)
    assert max(map(len, texts)) < 100_000


def test_parquet_bytes_that_are_not_utf_8_are_refused() -> None:
    """Spark hands a string column over without looking at it."""
    ids = pa.array([b"e1", b"e\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_pylist([GOOD, GOOD], schema=EVENT)
    columns = [ids if name == "event_id" else batch.column(name) for name in EVENT.names]
    parsed = parse_columns(pa.RecordBatch.from_arrays(columns, schema=EVENT))
    events, refused = validate(parsed, POLICY)
    assert events.column("event_id").to_pylist() == ["e1"]
    assert refused.column("reason").to_pylist() == ["bad_text"]
    assert "e\\\\xff" in refused.column("row")[0].as_py()


def test_reasons_are_those_of_a_source_row() -> None:
    used = {reason for _, reason in BAD_ROWS}
    assert used <= {reason.value for reason in QuarantineReason}


def test_an_event_from_before_the_first_policy_is_refused() -> None:
    limits = "limit_minor = 5\nrelease_level_minor = 5\n"
    since = "effective_from = 2026-11-02T12:00:00Z\n"
    policy = Policy.parse(f'version = "v1"\n[[default]]\n{limits}{since}')
    before, within = NOON - 15 * 60 * 1_000_000 - 1, NOON - 15 * 60 * 1_000_000
    events, refused = validate(_parsed({"occurred_at": before}, {"occurred_at": within}), policy)
    assert events.column("occurred_at").cast(pa.int64()).to_pylist() == [within]
    assert refused.column("reason").to_pylist() == ["time_out_of_range"]
