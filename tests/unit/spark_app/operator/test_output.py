from typing import Any

import pyarrow as pa

from holdfast.sink.contract.canonical import INTEGER_MAX
from holdfast.sink.contract.key import Key
from holdfast.sink.rows.batch import prepare
from holdfast.spark_app.exposure.schema import DECISIONS
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, to_blob
from holdfast.spark_app.operator.output import entries, select, unpack

END = 1_793_621_700_000_000  # 2026-11-02T12:15:00Z
DECISION = {
    "merchant_id": "m_482",
    "action": "block",
    "window_start": END - 900_000_000,
    "window_end": END,
    "revision": 1,
    "ordinal": 1,
    "exposure_minor": 8_500_000,
    "limit_minor": 5_000_000,
    "release_level_minor": 5_000_000,
    "currency": "USD",
    "policy_version": "v1",
}


def _blobs(*parts: tuple[Kind, list[dict[str, Any]]]) -> pa.Table:
    rows = [
        {"kind": kind.value, "blob": to_blob(pa.Table.from_pylist(part, schema=SCHEMAS[kind]))}
        for kind, part in parts
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema({"kind": pa.string(), "blob": pa.binary()}))


def test_a_decision_is_an_entry_with_the_key_of_its_business_action() -> None:
    decisions = pa.Table.from_pylist(
        [DECISION, DECISION | {"action": "release", "ordinal": 2, "merchant_id": "m_1"}],
        schema=DECISIONS,
    )
    block, release = entries(decisions).to_pylist()
    assert block["subject"] == "m_482"
    assert block["type"] == "payout_hold.block"
    assert block["key"] == ["payout-hold/v1", "m_482", "2026-11-02T12:15:00Z", "block", "1"]
    assert block["priority"] == 0
    assert block["occurred_at"].isoformat() == "2026-11-02T12:15:00+00:00"
    assert set(block["data"]) == set(DECISION) - {"ordinal"}
    assert release["key"][1:] == ["m_1", "2026-11-02T12:15:00Z", "release", "2"]
    assert (release["type"], release["priority"]) == ("payout_hold.release", 1)


def test_a_decision_beyond_what_json_carries_goes_out_with_the_most_it_carries() -> None:
    exposures = [INTEGER_MAX, INTEGER_MAX + 1, 2**63 - 1, -INTEGER_MAX, -INTEGER_MAX - 1, -(2**63)]
    decisions = [
        DECISION | {"ordinal": number, "exposure_minor": exposure}
        for number, exposure in enumerate(exposures, 1)
    ]
    window = {name: DECISION[name] for name in SCHEMAS[Kind.WINDOWS].names}
    window["exposure_minor"] = 2**63 - 1
    batch = select(_blobs((Kind.DECISIONS, decisions), (Kind.WINDOWS, [window])))
    prepared = prepare(batch)
    assert not prepared.quarantined.num_rows
    sent = [row["data"]["exposure_minor"] for row in batch.entries.to_pylist()]
    assert sent == [INTEGER_MAX] * 3 + [-INTEGER_MAX] * 3
    assert prepared.entries.num_rows == len(exposures)
    assert batch.companions["windows"]["exposure_minor"].to_pylist() == [2**63 - 1]


def test_the_sink_takes_what_the_job_selects() -> None:
    late = {
        "reason": "late",
        "event_id": "e1",
        "merchant_id": "m_1",
        "type": "t",
        "amount_minor": 1,
        "currency": "USD",
        "occurred_at": END,
        "watermark": None,
    }
    window = {name: DECISION[name] for name in SCHEMAS[Kind.WINDOWS].names}
    refused = {"reason": "malformed", "detail": "not JSON", "row": "{"}
    batch = select(
        _blobs(
            (Kind.DECISIONS, [DECISION]),
            (Kind.WINDOWS, [window]),
            (Kind.LATE, [late]),
            (Kind.REFUSED, [refused]),
            (Kind.WINDOWS, [window | {"merchant_id": "m_1"}]),
        )
    )
    prepared = prepare(batch)
    key = Key.of(["payout-hold/v1", "m_482", "2026-11-02T12:15:00Z", "block", "1"])
    assert prepared.entries["key"].to_pylist() == [key.digest.hex]
    assert prepared.quarantined["reason"].to_pylist() == ["malformed"]
    assert prepared.row_count == 2
    assert batch.companions["windows"].num_rows == 2
    assert batch.companions["late"].num_rows == 1


def test_a_batch_without_blobs_is_a_batch_without_rows() -> None:
    blobs = _blobs()
    assert prepare(select(blobs)).row_count == 0
    assert unpack(blobs).windows.num_rows == 0
