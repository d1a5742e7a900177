"""A batch's rows become entries, or are set aside with a reason; none is lost and none stops it."""

import itertools
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from holdfast.sink.contract.key import Key
from holdfast.sink.errors import BatchTooLarge, SchemaMismatch
from holdfast.sink.rows import batch as batch_module
from holdfast.sink.rows.batch import BatchInput, PreparedBatch, prepare
from tests.support.dispatch.entries import BLOCK, NOON, REFUSED, RELEASE, SCHEMA, decision, table
from tests.support.job.bad_rows import BAD_ROWS


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


def test_entries_are_ordered_by_subject_time_and_key_whatever_the_input_order() -> None:
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
        found = [(entry["subject"], entry["key"]) for entry in entries]
        assert found == [(subject, Key.of(parts).digest.hex) for subject, parts in expected]


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


def test_rows_that_come_refused_are_kept_in_a_form_that_can_be_stored() -> None:
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
    assert first == {"reason": "malformed", "detail": "no json", "row": r"{\u0000"}
    assert json.loads(second["row"])["bytes"] == 100_000


def test_unknown_reason_is_refused_before_any_row() -> None:
    refused = pa.Table.from_pylist([{"reason": "odd", "detail": "", "row": ""}], REFUSED)
    with pytest.raises(SchemaMismatch, match=r"reason 'odd' is not known"):
        prepare(BatchInput(table(decision()), refused))


def test_digest_covers_entries_refused_rows_and_companions() -> None:
    entries = table(decision())
    refused = pa.Table.from_pylist([{"reason": "malformed", "detail": "", "row": ""}], REFUSED)
    windows = pa.table({"merchant_id": ["m_482"], "revision": [1]})
    found = {
        prepare(BatchInput(entries)).digest,
        prepare(BatchInput(entries, refused)).digest,
        prepare(BatchInput(entries, None, {"windows": windows})).digest,
        prepare(BatchInput(entries, None, {"late": windows})).digest,
        prepare(BatchInput(entries, refused, {"windows": windows})).digest,
    }
    assert len(found) == 5


def test_batch_beyond_the_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "ROWS_MAX", 1)
    with pytest.raises(BatchTooLarge, match=r"has 2 rows .*maxFilesPerTrigger"):
        prepare(BatchInput(table(decision("m_1"), decision("m_2"))))
