"""A state in tables: what key groups store of it, for any other number of key groups."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator import initial_state, stored
from holdfast.spark_app.operator.groups import group_numbers, key_group
from holdfast.spark_app.operator.regroup import whole
from holdfast.spark_app.savepoint import tables
from tests.support.job.exposure import Group, row
from tests.support.job.exposure_runs import Run, apply, runs
from tests.support.job.split_groups import split
from tests.support.job.stored_state import Kept, content

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


def _of_group(found: dict[str, pa.Table], number: int, numbers: tuple[int, ...]) -> pa.Table:
    """The rows that Spark hands over for a key group."""
    every = [pa.Table.from_pylist([{"key_group": number}])]
    for table in found.values():
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
    found = content(state)
    ids = {end: sorted(each, key=lambda held: held[0]) for end, each in found["ids"].items()}
    return found | {"ids": ids}


@pytest.mark.rest
@given(runs(MERCHANTS), GROUPS, GROUPS)
@settings(max_examples=60, deadline=None)
def test_groups_of_the_tables_are_those_of_the_state(run: Run, before: int, after: int) -> None:
    policy, numbers = Policy.parse(run.policy), group_numbers(before, 2)
    states = dict.fromkeys(numbers, GroupState.empty())
    stored_groups = {number: Kept() for number in numbers}
    watermark = None
    for batch in run.batches:
        watermark = batch.watermark
        for number in numbers:
            rows = [r for r in batch.rows if key_group(r.merchant_id, numbers) == number]
            part = type(batch)(rows, watermark)
            states[number], output = apply(states[number], part, policy, run.settings)
            stored_groups[number].save(states[number], output.absorbed)

    found = _tables(list(stored_groups.values()))
    regroup = tables.Regrouped(None, watermark, run.settings)
    others = group_numbers(after, 3)
    expected = split(whole(states.values()), others)
    for number in others:
        kept = _stored(regroup(_of_group(found, number, others)))
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


def test_a_merchant_that_is_there_twice_is_refused() -> None:
    merchant = {"merchant_id": "m", "held": True, "latest_end_us": 900_000_000}
    found = {name: schema.empty_table() for name, schema in tables.SCHEMAS.items()}
    found[tables.MERCHANTS] = pa.Table.from_pylist(
        [merchant, merchant], tables.SCHEMAS[tables.MERCHANTS]
    )
    with pytest.raises(StateError, match="Merchant m "):
        tables.group_state(_of_group(found, 3, (3,)), None)
