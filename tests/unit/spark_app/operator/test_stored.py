"""What is kept of a key group between batches, without Spark."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import STATE_ABSORBED
from holdfast.spark_app.exposure.state import GroupState
from holdfast.spark_app.operator import stored
from holdfast.spark_app.operator.id_segments import BASE, plan_segment
from holdfast.spark_app.operator.stored import GroupValue, SegmentKey
from tests.support.job.exposure import Group, at, row
from tests.support.job.exposure_runs import Run, apply, runs
from tests.support.job.stored_state import Kept, content

NOTHING = STATE_ABSORBED.empty_table()


def _keep(kept: Kept, group: Group) -> tuple[set[int], set[SegmentKey]]:
    return kept.save(group.state, group.output.absorbed)


@pytest.mark.rest
@given(runs())
@settings(max_examples=100, deadline=None)
def test_a_state_that_is_stored_and_read_at_every_batch_is_the_state_in_memory(run: Run) -> None:
    policy, memory, kept = Policy.parse(run.policy), GroupState.empty(), Kept()
    for batch in run.batches:
        memory, expected = apply(memory, batch, policy, run.settings)
        state, output = apply(kept.load(ids=bool(batch.rows)), batch, policy, run.settings)
        assert output == expected
        kept.save(state, output.absorbed)
        assert content(kept.load()) == content(memory)
    assert memory.is_empty is kept.is_empty


def test_nothing_is_kept_of_a_group_that_remembers_nothing() -> None:
    assert stored.group_value(GroupState.empty(), None) is None
    assert content(Kept().load()) == content(GroupState.empty())


def test_windows_are_written_only_at_the_ends_that_changed() -> None:
    kept = Kept()
    group = Group().batch(None, row("a", "12:00", 1), row("b", "12:20", 1, "other"))
    assert _keep(kept, group) == (
        {at("12:15"), at("12:30")},
        {SegmentKey(at("12:15"), 0), SegmentKey(at("12:30"), 0)},
    )
    group.batch("12:01", row("c", "12:21", 1))
    assert _keep(kept, group) == ({at("12:30")}, {SegmentKey(at("12:30"), 1)})
    group.batch("12:01", row("c", "12:21", 1))
    assert _keep(kept, group) == (set(), set())


def test_an_id_whose_amount_is_nothing_is_kept_too() -> None:
    kept = Kept()
    group = Group().batch(None, row("a", "12:00", 1))
    _keep(kept, group)
    group.batch("12:01", row("b", "12:00", 0))
    assert _keep(kept, group) == (set(), {SegmentKey(at("12:15"), 1)})


def test_windows_and_ids_leave_together_without_the_ids_being_read() -> None:
    kept = Kept()
    group = Group().batch(None, row("a", "12:00", 1), row("b", "12:20", 1))
    _keep(kept, group)
    group.state = kept.load(ids=False)
    group.batch("12:17")
    _keep(kept, group)
    assert set(kept.windows) == {at("12:30")}
    assert set(kept.ids) == {SegmentKey(at("12:30"), 0)}


def test_a_settled_moment_alone_is_kept() -> None:
    kept = Kept()
    state = replace(GroupState.empty(), settled_until_us=at("12:15"))
    kept.save(state, NOTHING, 7)
    assert kept.group == GroupValue(7, at("12:15"), None)
    assert content(kept.load()) == content(state)


def test_text_that_is_not_the_state_are_refused() -> None:
    group = Group().batch(None, row("a", "12:00", 1))
    value = stored.group_value(group.state, None)
    assert value is not None
    assert value.merchants is not None
    with pytest.raises(StateError, match="found part merchants"):
        stored.decode_group(None, value.merchants, {at("12:15"): value.merchants}, {})
    with pytest.raises(StateError, match="is cut"):
        stored.decode_group(None, value.merchants[:-4], {}, {})
    with pytest.raises(StateError, match="not a part"):
        stored.decode_group(None, "no base64 of a state, and long enough", {}, {})


@given(st.integers(0, 1200))
@settings(max_examples=30, deadline=None)
def test_pieces_are_as_few_as_the_digits_of_their_count_allow(count: int) -> None:
    levels: dict[int, int] = {}
    held: dict[int, list[int]] = {}
    for batch in range(count):
        where = plan_segment(levels)
        merged = [number for segment in where.merged for number in held[segment]]
        for segment in where.merged:
            del levels[segment], held[segment]
        levels[where.segment] = where.level
        held[where.segment] = [*merged, batch]

    # In order of their numbers the segments hold all batches, the oldest first, ...
    assert [n for segment in sorted(held) for n in held[segment]] == list(range(count))
    # ... and there are as many of each level as the digit says, of BASE to the power of the level.
    digits = [0] * (max(levels.values(), default=-1) + 1)
    for segment, level in levels.items():
        digits[level] += 1
        assert len(held[segment]) == BASE**level
    assert all(digit < BASE for digit in digits)
