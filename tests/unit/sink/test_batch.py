"""A batch's rows become entries or are set aside; a table with wrong columns is refused whole."""

import itertools
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from holdfast.sink.contract.key import Key
from holdfast.sink.errors import BatchTooLarge, SchemaMismatch, TooManyRefused
from holdfast.sink.rows import batch as batch_module
from holdfast.sink.rows.batch import BatchInput, PreparedBatch, prepare, reject
from holdfast.sink.rows.quarantine_limit import QuarantineLimit
from tests.support.dispatch.sender import BLOCK, NOON, REFUSED, RELEASE, SCHEMA, decision, table
from tests.support.job.decisions import BAD_ROWS


def _prepared(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> PreparedBatch:
    prepared = prepare(BatchInput(pa.Table.from_pylist(list(rows), schema)))
    written, set_aside = prepared.entries.num_rows, prepared.quarantined.num_rows
    assert prepared.row_count == len(rows)
    assert prepared.row_count == written + prepared.duplicate_count + set_aside
    return prepared


def _reasons(prepared: PreparedBatch) -> list[str]:
    return prepared.quarantined["reason"].to_pylist()


def _with(**columns: pa.DataType) -> pa.Schema:
    schema = SCHEMA
    for name, type_ in columns.items():
        position = schema.get_field_index(name)
        column = pa.field(name, type_)
        schema = schema.append(column) if position < 0 else schema.set(position, column)
    return schema


def test_row_becomes_an_entry_with_key_and_body() -> None:
    [entry] = _prepared(decision("m_482", minor=8_500_000)).entries.to_pylist()
    parts = ["payout-hold/v1", "m_482", "2026-11-02T12:15:00+00:00", BLOCK, "1"]
    assert entry["key"] == Key.of(parts).digest.hex
    assert json.loads(f"{entry['head']}7{entry['tail']}") == {
        "type": BLOCK,
        "timestamp": "2026-11-02T12:15:00Z",
        "sequence": 7,
        "key": Key.of(parts).text,
        "data": {"merchant_id": "m_482", "exposure_minor": 8_500_000},
    }
    assert (entry["subject"], entry["priority"], entry["traceparent"]) == ("m_482", 0, None)


def test_entries_are_ordered_by_subject_time_and_key() -> None:
    rows = [
        decision("m_2", 1),
        decision("m_1", 2),
        decision("m_1", 1, RELEASE, key=["b"]),
        decision("m_1", 1, BLOCK, key=["a", "z"]),
    ]
    expected = [
        ("m_1", ["a", "z"]),
        ("m_1", ["b"]),
        ("m_1", rows[1]["key"]),
        ("m_2", rows[0]["key"]),
    ]
    for order in itertools.permutations(rows):
        entries = _prepared(*order).entries.to_pylist()
        results = [(entry["subject"], entry["key"]) for entry in entries]
        assert results == [(subject, Key.of(parts).digest.hex) for subject, parts in expected]


@pytest.mark.parametrize(("change", "reason"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_bad_row_is_set_aside_and_the_rest_is_written(change: dict[str, Any], reason: str) -> None:
    schema = _with(priority=pa.int32())
    prepared = _prepared(decision("m_1"), decision("m_2") | change, decision("m_3"), schema=schema)
    assert prepared.entries["subject"].to_pylist() == ["m_1", "m_3"]
    [row] = prepared.quarantined.to_pylist()
    assert row["reason"] == reason
    assert row["detail"]
    assert "\x00" not in row["row"]
    kept = json.loads(row["row"])
    assert kept.get("cut") or set(kept) == set(schema.names)


def test_value_that_python_cannot_hold_concerns_its_row_only() -> None:
    rows = table(decision("m_1"), decision("m_2"), decision("m_3"))
    subject = pa.array([b"m_1", b"m\xff", b"m_3"]).view(pa.string())
    moments = pa.array([1, 2, 2**62]).cast(pa.timestamp("us", "UTC"))
    data = pa.StructArray.from_arrays([subject, moments], names=["merchant_id", "seen_at"])
    broken = rows.set_column(0, "subject", subject).set_column(4, "data", data)
    prepared = prepare(BatchInput(broken))
    assert prepared.entries["subject"].to_pylist() == ["m_1"]
    assert _reasons(prepared) == ["bad_subject", "bad_data"]
    assert json.loads(prepared.quarantined["row"][0].as_py())["subject"] == r"m\xff"
    assert json.loads(prepared.quarantined["row"][1].as_py())["data"]["seen_at"] == 2**62


def test_second_row_of_a_key_is_a_duplicate_or_a_conflict() -> None:
    same, other = decision(minor=1), decision(minor=2)
    prepared = _prepared(same, same)
    assert (prepared.entries.num_rows, prepared.duplicate_count) == (1, 1)

    for order in itertools.permutations([same, other, same]):
        prepared = _prepared(*order)
        assert prepared.duplicate_count == 1
        assert _reasons(prepared) == ["key_conflict"]
        [entry] = prepared.entries.to_pylist()
        assert '"exposure_minor":1' in entry["tail"]


def test_one_key_for_two_subjects_is_a_conflict_even_with_the_same_data() -> None:
    same = {"key": ["k"], "data": {"merchant_id": "m", "exposure_minor": 1}}
    prepared = _prepared(decision("m_1", **same), decision("m_2", **same))
    assert prepared.entries["subject"].to_pylist() == ["m_1"]
    assert _reasons(prepared) == ["key_conflict"]


def test_malformed_traceparent_is_none_and_a_good_one_is_kept() -> None:
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    rows = [
        decision("m_1", traceparent=good),
        decision("m_2", traceparent=f"{good}\r\nx: y"),
        decision("m_3", traceparent=None),
    ]
    prepared = _prepared(*rows, schema=_with(traceparent=pa.string()))
    assert prepared.entries["traceparent"].to_pylist() == [good, None, None]


def test_times_in_data_are_rfc3339_and_zones_do_not_matter() -> None:
    at = datetime(2026, 11, 2, 13, 15, tzinfo=UTC)
    schema = _with(
        data=pa.struct({"window_end": pa.timestamp("us", "Europe/Zurich")}),
        occurred_at=pa.timestamp("us", "America/New_York"),
    )
    [entry] = _prepared(decision(data={"window_end": at}), schema=schema).entries.to_pylist()
    assert entry["occurred_at"] == NOON.replace(minute=15)
    assert '"data":{"window_end":"2026-11-02T13:15:00Z"}' in entry["tail"]


def test_refused_rows_are_kept_in_storable_form() -> None:
    refused = pa.Table.from_pylist(
        [
            {"reason": "malformed", "detail": "no\njson", "row": "{\x00"},
            {"reason": "bad_time", "detail": None, "row": "x" * 100_000},
        ],
        REFUSED,
    )
    prepared = prepare(BatchInput(table(), refused))
    assert prepared.row_count == 2
    first, second = prepared.quarantined.to_pylist()
    assert first == {"reason": "malformed", "detail": "no json", "row": r"{\u0000", "rule": None}
    assert json.loads(second["row"])["bytes"] == 100_000


@pytest.mark.parametrize("reason", ["No such order", "rejected", "", None])
def test_unknown_reason_is_refused_before_any_row(reason: str | None) -> None:
    refused = pa.Table.from_pylist([{"reason": reason, "detail": "", "row": ""}], REFUSED)
    with pytest.raises(SchemaMismatch, match=rf"reason {reason!r} is not known"):
        prepare(BatchInput(table(decision()), refused))


def test_rows_rejected_by_a_column_keep_their_rule_and_no_key() -> None:
    row = decision("m_1")
    schema = _with(rejected=pa.string())
    rows = [row | {"rejected": "no_such_order"}, row, decision(""), row | {"rejected": "No such"}]
    prepared = _prepared(*rows, schema=schema)
    assert prepared.entries["subject"].to_pylist() == ["m_1"]
    kept = sorted(prepared.quarantined.to_pylist(), key=lambda each: each["reason"])
    assert [(each["reason"], each["rule"]) for each in kept] == [
        ("bad_data", None),
        ("bad_subject", None),
        ("rejected", "no_such_order"),
    ]
    assert "'No such', which cannot name a rule: expected a-z" in kept[0]["detail"]
    for each in (kept[0], kept[2]):
        text = json.loads(each["row"])
        assert text == row | {"occurred_at": "2026-11-02T12:15:00Z"}


def test_column_of_rules_must_be_text() -> None:
    schema = _with(rejected=pa.bool_())
    with pytest.raises(SchemaMismatch, match=r"column 'rejected' is bool, expected string: name"):
        _prepared(decision(), schema=schema)
    assert _prepared(decision(), schema=_with(rejected=pa.null())).quarantined.num_rows == 0


def test_event_of_a_rejected_row_is_kept_in_its_place() -> None:
    schema = _with(rejected=pa.string(), rejected_event=pa.string())
    rule, event = {"rejected": "no_such_order"}, {"rejected_event": "this is no event"}
    bare = dict.fromkeys(decision("m_1"))
    rows = [bare | rule | event, decision("m_1") | rule, decision("m_1") | event, bare | event]
    prepared = _prepared(*rows, schema=schema)
    assert prepared.entries["subject"].to_pylist() == ["m_1"]
    kept, row, refused = prepared.quarantined["row"].to_pylist()
    assert kept == "this is no event"
    assert json.loads(row)["subject"] == "m_1"
    assert "event" not in refused
    without_rules = _with(rejected_event=pa.string())
    assert _prepared(decision() | event, schema=without_rules).quarantined.num_rows == 0


def test_rejected_rows_make_the_table_of_a_batch() -> None:
    at = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
    rows = (reject("no_such_order", each, "order 17") for each in ({"order": 17, "at": at}, "raw"))
    given = BatchInput(table(decision()), rows)
    assert given.refused.num_rows == 2
    prepared = prepare(given)
    assert prepared.row_count == 3
    text = '{"order": 17, "at": "2026-11-02T12:15:00Z"}'
    assert prepared.quarantined.to_pylist() == [
        {"reason": "rejected", "detail": "order 17", "row": kept, "rule": "no_such_order"}
        for kept in (text, "raw")
    ]


@pytest.mark.parametrize(
    "name", ["", "No", "9a", "a-b", "a\n", "é", "a" * 65, "bad_data", "rejected"]
)
def test_name_that_no_rule_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot name a rule: expected a-z"):
        reject(name, {})


def test_rejected_value_whose_text_may_change_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no text that a replay is sure to repeat"):
        reject("no_such_order", {"tags": {"a", "b"}})


def test_digest_covers_entries_refused_rows_and_companions() -> None:
    entries = table(decision())
    refused = pa.Table.from_pylist([{"reason": "malformed", "detail": "", "row": ""}], REFUSED)
    windows = pa.table({"merchant_id": ["m_482"], "revision": [1]})
    digests = {
        prepare(BatchInput(entries)).digest,
        prepare(BatchInput(entries, refused)).digest,
        prepare(BatchInput(entries, None, {"windows": windows})).digest,
        prepare(BatchInput(entries, None, {"late": windows})).digest,
        prepare(BatchInput(entries, refused, {"windows": windows})).digest,
    }
    assert len(digests) == 5


def test_batch_beyond_the_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "ROWS_MAX", 1)
    with pytest.raises(BatchTooLarge, match=r"has 2 rows .*maxFilesPerTrigger"):
        prepare(BatchInput(table(decision("m_1"), decision("m_2"))))


def _refusal(entries: pa.Table, companions: dict[str, pa.Table] | None = None) -> str:
    with pytest.raises(SchemaMismatch) as raised:
        prepare(BatchInput(entries, None, companions or {}))
    assert "nothing was written" in str(raised.value)
    return str(raised.value)


def nested(levels: int) -> pa.DataType:
    type_: pa.DataType = pa.int64()
    for _ in range(levels):
        type_ = pa.struct({"x": type_})
    return type_


def test_missing_column_is_named() -> None:
    assert "column 'key' (array<string>) is missing" in _refusal(table().drop_columns("key"))


def test_column_in_another_case_is_not_taken_for_it() -> None:
    names = ["Subject" if name == "subject" else name for name in SCHEMA.names]
    words = _refusal(table().rename_columns(names))
    assert "column 'Subject' must be spelled 'subject'" in words
    assert "missing" not in words


def test_unknown_and_repeated_columns_are_named() -> None:
    assert "column 'amount' is not known here" in _refusal(
        table().append_column("amount", pa.array([], pa.int64()))
    )
    assert "column 'SUBJECT' is there twice" in _refusal(
        table().append_column("SUBJECT", pa.array([], pa.string()))
    )


def test_all_problems_come_in_one_error() -> None:
    entries = table(decision()).drop_columns(["type", "data"])
    words = _refusal(entries.append_column("priority", pa.array(["high"])))
    assert all(name in words for name in ("'type'", "'data'", "'priority' is string"))


@pytest.mark.parametrize(
    ("name", "type_", "fix"),
    [
        ("subject", pa.int64(), "cast it to string"),
        ("key", pa.string(), "F.array"),
        ("occurred_at", pa.timestamp("us"), "cast it to timestamp"),
        ("occurred_at", pa.timestamp("ns", "UTC"), "microseconds"),
        ("occurred_at", pa.date32(), "cast it to timestamp"),
        ("data", pa.map_(pa.string(), pa.string()), "F.struct"),
        ("data", pa.struct({"amount": pa.float64()}), "data.amount is double: floats round"),
        ("data", pa.struct({"a": pa.decimal128(9, 2)}), "data.a is decimal128(9, 2): send integer"),
        ("data", pa.struct({"a": pa.list_(pa.struct({"b": pa.binary()}))}), "data.a[].b is binary"),
        ("data", pa.struct({"a": pa.map_(pa.string(), pa.int64())}), "send a struct"),
        ("data", pa.struct({"a": pa.timestamp("us")}), "with a time zone"),
        ("data", pa.struct({"a": pa.date32()}), "cast it to string"),
        ("data", pa.struct([("a", pa.int64()), ("a", pa.int64())]), "data.a: two fields"),
        ("data", nested(60), "is nested in more than 60 levels"),
        ("data", pa.struct({"a\0b": pa.int64()}), r"'data.a\x00b': a field's name holds a NUL"),
        ("data", pa.struct({"a": pa.list_(pa.struct({"\0": pa.int64()}))}), r"'data.a[].\x00': a"),
    ],
)
def test_wrong_type_is_named_with_its_fix(name: str, type_: pa.DataType, fix: str) -> None:
    column = pa.array([], type_) if not pa.types.is_map(type_) else pa.nulls(0, type_)
    position = SCHEMA.get_field_index(name)
    words = _refusal(table().set_column(position, pa.field(name, type_), column))
    assert name in words
    assert fix in words


def test_optional_column_of_nulls_is_taken() -> None:
    entries = table(decision()).append_column("priority", pa.nulls(1))
    assert prepare(BatchInput(entries)).entries["priority"].to_pylist() == [0]


def test_companion_is_flat_and_has_no_floats() -> None:
    nested = pa.table({"a": pa.array([{"b": 1}])})
    floats = pa.table({"a": pa.array([1.5])})
    assert "a companion table is flat" in _refusal(table(), {"windows": nested})
    assert "companion table 'windows': column 'a' is double" in _refusal(
        table(), {"windows": floats}
    )


@pytest.mark.parametrize(
    ("quarantined", "of", "exceeded"),
    [
        (0, 0, False),
        (999, 999, False),  # a small batch may be bad as a whole
        (500, 1_000, False),
        (501, 1_000, True),
        (100_000, 1_000_000, False),
        (100_001, 1_000_000, True),
    ],
)
def test_default_limit_is_half_and_100000_rows(quarantined: int, of: int, exceeded: bool) -> None:
    assert QuarantineLimit().exceeded(quarantined, of) is exceeded


def test_no_refused_row_at_all_can_be_the_limit() -> None:
    limit = QuarantineLimit(rows=0)
    limit.check("batch 1", 0, 5)
    with pytest.raises(TooManyRefused):
        limit.check("batch 1", 1, 5)


def test_message_has_the_counts_the_limit_and_the_way_out() -> None:
    with pytest.raises(TooManyRefused) as raised:
        QuarantineLimit().check("stream 'payouts': batch 7", 1_600, 2_000)
    message = str(raised.value)
    assert message.startswith("stream 'payouts': batch 7: 1,600 of its 2,000 rows were refused")
    assert "100,000 rows or 50% of a batch of 1,000 or more" in message
    assert "nothing is lost" in message
    assert "the exposure job: with its option --refused-rows" in message


@pytest.mark.parametrize(
    "wrong", [{"rows": -1}, {"share": 1.5}, {"share": -0.1}, {"share_from": -1}]
)
def test_limit_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected rows >= 0"):
        QuarantineLimit(**wrong)  # type: ignore[arg-type]  # on purpose
