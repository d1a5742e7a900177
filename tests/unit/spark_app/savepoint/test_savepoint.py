"""A savepoint: its manifest, its tables, and the files that a source has read."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.shape import SOURCES
from holdfast.spark_app.exposure import codec
from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator import initial_state, stored
from holdfast.spark_app.operator.groups import group_numbers, key_group
from holdfast.spark_app.operator.stored import combined
from holdfast.spark_app.savepoint import tables
from holdfast.spark_app.savepoint.manifest import VERSION, File, Manifest, checksum
from holdfast.spark_app.savepoint.read_files import entries, log_entry, log_offset
from tests.support.examples import examples
from tests.support.job.exposure import Group, Run, apply, row, runs
from tests.support.job.stored_state import Kept, content, split

MANIFEST = Manifest(
    savepoint_id="0b5a7c4e-2d0c-4b0e-9e62-7a1d1a2b3c4d",
    stream="payouts",
    query_id="9f0c7c1e-9d53-4c6e-8a44-0f6a4c1c1c11",
    batch_id=7,
    digest="ab" * 32,
    created_at="2026-11-25T03:00:00+00:00",
    holdfast="0.1.0",
    spark="4.3.0",
    codec=codec.VERSION,
    begun={
        "version": 3,
        "stream": "payouts",
        SOURCES: [{"kind": "files", "path": "/events", "format": "json"}],
        "key_groups": 4,
        "partitions": 2,
        "window_us": 900_000_000,
        "watermark_delay_us": 30_000_000,
        "late_cutoff_us": 120_000_000,
        "future_tolerance_us": 300_000_000,
    },
    watermark_ms=1_730_722_580_000,
    next_watermark_ms=1_730_723_610_000,
    settled_until_us=None,
    offsets=["v1", '{"batchWatermarkMs":1730722580000,"conf":{}}', '{"logOffset":2}'],
    policies={"version": 1, "policies": []},
    rows={"windows": 1, "merchants": 1, "ids": 2},
    files=[
        File(f"{table}/part-0.parquet", 10, "cd" * 32) for table in ("windows", "merchants", "ids")
    ],
)
TEXT = MANIFEST.to_json()


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest = Manifest.from_json(TEXT, "/sp")
    assert manifest == MANIFEST
    assert manifest.proof.digest == bytes.fromhex("ab" * 32)
    assert manifest.settings == Settings()
    assert manifest.watermark_us == 1_730_722_580_000_000
    assert replace(manifest, watermark_ms=0).watermark_us is None
    manifest.require_readable("/sp")


def test_a_table_with_rows_and_no_file_is_damage() -> None:
    """Else its part of the state would silently be empty."""
    for table in MANIFEST.rows:
        files = [file for file in MANIFEST.files if not file.name.startswith(f"{table}/")]
        with pytest.raises(CommandError, match="cannot be read"):
            Manifest.from_json(replace(MANIFEST, files=files).to_json(), "/sp")
        empty = replace(MANIFEST, files=files, rows={**MANIFEST.rows, table: 0})
        assert Manifest.from_json(empty.to_json(), "/sp") == empty


@given(st.integers(0, len(TEXT) - 2))
def test_a_cut_manifest_is_refused(length: int) -> None:
    with pytest.raises(CommandError, match=r"manifest\.json in the savepoint /sp"):
        Manifest.from_json(TEXT[:length], "/sp")


@given(st.integers(0, len(TEXT) - 1), st.integers(0, 6))
def test_a_flipped_bit_is_refused_or_changes_nothing(place: int, bit: int) -> None:
    flipped = TEXT[:place] + chr(ord(TEXT[place]) ^ 1 << bit) + TEXT[place + 1 :]
    # A space of the layout may become another one.
    with suppress(CommandError):
        assert Manifest.from_json(flipped, "/sp") == MANIFEST


def _resealed(**changed: Any) -> str:
    content = json.loads(TEXT) | changed
    del content["checksum"]
    return json.dumps({**content, "checksum": checksum(content)})


def test_a_manifest_of_a_later_version_is_refused_by_its_version() -> None:
    later = json.dumps({"version": VERSION + 1, "holdfast": "9.1.0", "unknown": "fields"})
    with pytest.raises(CommandError, match=r"version 3, and this Holdfast reads up to 2.*9\.1\.0"):
        Manifest.from_json(later, "/sp")


@pytest.mark.parametrize("field", ["digest", "query_id", "begun", "files", "offsets"])
def test_a_sealed_manifest_without_sense_is_refused(field: str) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        Manifest.from_json(_resealed(**{field: [{"no": "sense"}]}), "/sp")


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "{}", '{"version": "1"}', "\0"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        Manifest.from_json(text, "/sp")


def test_columns_of_another_version_are_refused() -> None:
    other = Manifest.from_json(_resealed(codec=codec.VERSION + 1), "/sp")
    with pytest.raises(CommandError, match=r"run the version that wrote it \(0\.1\.0\)"):
        other.require_readable("/sp")


MERCHANTS = [f"m_{number}" for number in range(1, 9)]
GROUPS = st.integers(1, 16)


def _values(kept: Kept, name: str) -> Iterator[pa.RecordBatch]:
    """The stored values of which a table is made, as Spark's state reader gives them."""
    rows = {
        tables.WINDOWS: [
            {"window_end": end, "piece": None, "content": text}
            for end, text in kept.windows.items()
        ],
        tables.MERCHANTS: [{"window_end": None, "piece": None, "content": kept.group.merchants}],
        tables.IDS: [
            {"window_end": key.window_end, "piece": key.segment, "content": segment.content}
            for key, segment in kept.ids.items()
        ],
    }[name]
    shape = {"window_end": pa.int64(), "piece": pa.int32(), "content": pa.string()}
    yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(shape))


def _tables(groups: list[Kept]) -> dict[str, pa.Table]:
    return {
        name: pa.Table.from_batches(
            [batch for kept in groups for batch in tables.table_rows(name)(_values(kept, name))],
            schema,
        )
        for name, schema in tables.SCHEMAS.items()
    }


def _of_group(value: dict[str, pa.Table], number: int, numbers: tuple[int, ...]) -> pa.Table:
    """The rows that Spark hands over for a key group."""
    every = [pa.Table.from_pylist([{"key_group": number}])]
    for table in value.values():
        owners = [key_group(m, numbers) == number for m in table["merchant_id"].to_pylist()]
        every.append(table.filter(pa.array(owners, pa.bool_())))
    joined = pa.concat_tables(every, promote_options="permissive")
    fields = pa.unify_schemas(list(tables.SCHEMAS.values()))
    joined = joined.select([*fields.names, "key_group"])
    return joined.set_column(
        joined.schema.get_field_index("key_group"),
        "key_group",
        pa.array([number] * joined.num_rows, pa.int32()),
    )


def _stored(rows: pa.Table) -> Kept:
    kept = Kept()
    for value in rows.to_pylist():
        if value["window_end"] is None:
            kept.group = stored.GroupValue(
                value["armed_ms"], value["settled_until"], value["content"]
            )
        elif value["piece"] is None:
            kept.windows[value["window_end"]] = value["content"]
        else:
            key = stored.SegmentKey(value["window_end"], value["piece"])
            kept.ids[key] = stored.Segment(value["level"], value["content"])
    return kept


def _by_merchant(state: GroupState) -> dict[str, Any]:
    """A state in plain words; the ids of one window and one merchant in their order."""
    result = content(state)
    ids = {end: sorted(each, key=lambda held: held[0]) for end, each in result["ids"].items()}
    return result | {"ids": ids}


@pytest.mark.rest
@given(runs(MERCHANTS, by_hand=True), GROUPS, GROUPS)
@settings(max_examples=examples(60), deadline=None)
def test_groups_of_the_tables_are_those_of_the_state(run: Run, before: int, after: int) -> None:
    policy, numbers = Policy.parse(run.policy), group_numbers(before, 2)
    states = dict.fromkeys(numbers, GroupState.empty())
    stored_groups = {number: Kept() for number in numbers}
    watermark = None
    for batch in run.batches:
        watermark = batch.watermark
        for number in numbers:
            rows = [r for r in batch.rows if key_group(r.merchant_id, numbers) == number]
            decided = [d for d in batch.by_hand if key_group(d.merchant_id, numbers) == number]
            part = type(batch)(rows, watermark, decided)
            states[number], output = apply(states[number], part, policy, run.settings)
            stored_groups[number].save(states[number], output.absorbed)

    results = _tables(list(stored_groups.values()))
    regroup = tables.Regrouped(None, watermark, run.settings)
    others = group_numbers(after, 3)
    expected = split(combined(states.values()), others)
    for number in others:
        kept = _stored(regroup(_of_group(results, number, others)))
        assert _by_merchant(kept.load()) == _by_merchant(expected[number])
        due = initial_state.due_ms(expected[number], watermark, run.settings)
        assert kept.group.armed_ms == (None if kept.is_empty else due)


def test_a_group_without_rows_keeps_the_frontier() -> None:
    empty = {name: schema.empty_table() for name, schema in tables.SCHEMAS.items()}
    rows = tables.Regrouped(900_000_000, None, Group().settings)(_of_group(empty, 3, (3,)))
    assert [value["settled_until"] for value in rows.to_pylist()] == [900_000_000]


def test_many_ids_of_a_group_are_many_rows_in_their_order() -> None:
    group = Group()
    group.batch(None, *(row(f"e{n}", "12:01", 1) for n in range(10)))
    segments = stored.begun_ids(group.state.absorbed, 4)
    assert [key.segment for key in segments] == [0, 1, 2]
    levels = [segment.level for segment in segments.values()]
    assert levels == sorted(levels, reverse=True)
    kept = Kept(ids=segments)
    assert [i["event_id"] for i in kept.load().absorbed.to_pylist()] == [f"e{n}" for n in range(10)]
    # Later batches add segments of their own, and rewrite none of these.
    written, removed = stored.changed_ids(kept.ids, group.state.absorbed.slice(0, 1))
    assert ([key.segment for key in written], removed) == ([3], [])


def test_duplicate_merchant_is_refused() -> None:
    merchant = {"merchant_id": "m", "held": True, "latest_end_us": 900_000_000}
    found = {name: schema.empty_table() for name, schema in tables.SCHEMAS.items()}
    found[tables.MERCHANTS] = pa.Table.from_pylist(
        [merchant, merchant], tables.SCHEMAS[tables.MERCHANTS]
    )
    with pytest.raises(StateError, match="Merchant m "):
        tables.group_state(_of_group(found, 3, (3,)), None)


INTERVAL = 10


@given(st.integers(0, 60), st.data())
def test_log_entries_have_each_file_up_to_offset(last: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, last))
    whole = [number for number in range(last + 1) if number % INTERVAL == INTERVAL - 1]
    # Spark removes what the newest entries with all files repeat, sooner or later.
    removed = data.draw(st.integers(0, max(whole, default=0)))
    names = [
        f"{number}.compact" if number in whole else str(number)
        for number in range(removed, last + 1)
    ]
    held: set[int] = set()
    for name in entries(data.draw(st.permutations(names)), offset):
        number, _, compact = name.partition(".")
        held |= set(range(int(number) + 1)) if compact else {int(number)}
    assert {number for number in held if number <= offset} == set(range(offset + 1))


def test_an_incomplete_log_is_refused() -> None:
    with pytest.raises(ValueError, match="no entry 1"):
        entries(["0", "2"], 2)
    with pytest.raises(ValueError, match="no entry 0"):
        entries([], 0)


@pytest.mark.parametrize(
    ("line", "offset"), [("-", None), ('{"logOffset":-1}', None), ('{"logOffset":12}', 12)]
)
def test_the_offset_of_a_plan(line: str, offset: int | None) -> None:
    assert log_offset(line) == offset


@pytest.mark.parametrize("line", ["{}", "[1]", "7", '{"logOffset":"x"}', '{"topic":{"0":3}}'])
def test_another_kind_of_offset_is_refused(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own, or of the number
        log_offset(line)


def test_an_entry_is_what_spark_writes() -> None:
    read = [
        {"path": "file:///e/1.json", "timestamp": 5},
        {"path": "file:///e/2.json", "timestamp": 6},
    ]
    assert log_entry(read) == (
        'v1\n{"path":"file:///e/1.json","timestamp":5,"batchId":0}\n'
        '{"path":"file:///e/2.json","timestamp":6,"batchId":0}'
    )
