import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import ROWS, TIMESTAMP
from holdfast.spark_app.input.events import REFUSED
from holdfast.spark_app.input.lines import parse_lines
from holdfast.spark_app.operator import pack as module
from holdfast.spark_app.operator.blobs import from_blob
from holdfast.spark_app.operator.groups import group_numbers, key_group, spark_hash
from holdfast.spark_app.operator.pack import PACKED, Packer

NOON = 1_793_620_800_000_000
MINUTE = 60_000_000
POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')


def _line(event_id: str, merchant: str, minute: int, **changed: Any) -> bytes:
    row = {
        "event_id": event_id,
        "merchant_id": merchant,
        "type": "payout_submitted",
        "amount_minor": 5,
        "currency": "USD",
        "occurred_at": f"2026-11-02T12:{minute:02}:00Z",
    }
    return json.dumps(row | changed).encode()


GROUPS = group_numbers(4, 2)


def _packed(*batches: list[bytes], groups: tuple[int, ...] = GROUPS) -> list[dict[str, Any]]:
    """Pack lines that arrive at 12:30, with a tolerance of 5 minutes."""
    packer = Packer(lambda b: parse_lines(b.column("line")), POLICY, 5 * MINUTE, groups)
    arrays = [
        pa.RecordBatch.from_arrays(
            [
                pa.array(lines, pa.binary()),
                pa.array([NOON + 30 * MINUTE] * len(lines), TIMESTAMP),
            ],
            names=["line", "batch_time"],
        )
        for lines in batches
    ]
    packed = list(packer(iter(arrays)))
    assert all(batch.schema == PACKED for batch in packed)
    return [row for batch in packed for row in batch.to_pylist()]


def _events(rows: list[dict[str, Any]]) -> dict[int, list[str]]:
    return {
        row["key_group"]: from_blob(row["events"], ROWS).column("event_id").to_pylist()
        for row in rows
        if row["events"] is not None
    }


def test_each_event_travels_once_to_the_group_of_its_merchant() -> None:
    lines = [_line(f"e{i}", f"m_{i % 50}", i % 30) for i in range(500)]
    by_group = _events(_packed(lines[:200], lines[200:]))
    expected: dict[int, list[str]] = {}
    for i in range(500):
        expected.setdefault(key_group(f"m_{i % 50}", GROUPS), []).append(f"e{i}")
    assert by_group == expected


def test_key_groups_never_change() -> None:
    """A merchant's state lies in its group: another function would lose it."""
    numbers = group_numbers(16, 2)
    assert numbers == (2, 0, 4, 1, 5, 3, 10, 6, 12, 7, 13, 8, 14, 9, 18, 11)
    assert [key_group(name, numbers) for name in ("m_482", "m_1", "\u00e9")] == [4, 2, 18]


@pytest.mark.parametrize(("groups", "partitions"), [(1, 1), (4, 2), (32, 2), (32, 3), (64, 8)])
def test_spark_spreads_key_groups_evenly_over_the_partitions(groups: int, partitions: int) -> None:
    numbers = group_numbers(groups, partitions)
    assert len(set(numbers)) == groups
    shares = Counter(spark_hash(number) % partitions for number in numbers)
    assert max(shares.values()) - min(shares.values()) <= 1


def test_refused_rows_travel_with_their_reason() -> None:
    rows = _packed([_line("e1", "m_1", 1), b"{", _line("e2", "m_1", 2, currency="EUR")])
    refused = [row for row in rows if row["refused"] is not None]
    assert len(refused) == 1
    table = from_blob(refused[0]["refused"], REFUSED)
    assert table.column("reason").to_pylist() == ["malformed", "wrong_currency"]
    assert _events(rows) == {key_group("m_1", GROUPS): ["e1"]}


def test_a_future_dated_event_is_marked_and_never_moves_the_watermark() -> None:
    lines = [_line("now", "m_1", 20), _line("edge", "m_1", 35), _line("ahead", "m_1", 36)]
    (row,) = _packed(lines, groups=(0,))
    events = from_blob(row["events"], ROWS)
    assert dict(
        zip(*(events.column(n).to_pylist() for n in ("event_id", "future_dated")), strict=True)
    ) == {"now": False, "edge": False, "ahead": True}
    assert row["plausible_at"].isoformat() == "2026-11-02T12:35:00+00:00"


@pytest.mark.parametrize("line", [b"{", _line("e", "m", 50), _line("e", "m", 1, amount_minor=None)])
def test_nothing_that_is_not_applied_moves_the_watermark(line: bytes) -> None:
    assert [row["plausible_at"] for row in _packed([line])] == [None]


def test_nothing_to_read_is_nothing_to_send() -> None:
    assert _packed([], [b"", b"  "]) == []


def test_a_large_partition_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_PACK", 2)
    rows = _packed([_line("e1", "m", 1), _line("e2", "m", 2)], [_line("e3", "m", 3)], groups=(0,))
    assert [from_blob(row["events"], ROWS).num_rows for row in rows] == [2, 1]
