"""A checkpoint goes on with another number of key groups as if nothing had happened."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import BatchResult, Event, Reference
from holdfast.spark_app.exposure.codec import encode_part
from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import STATE_ABSORBED, STATE_MERCHANTS
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.exposure.state import GroupState, resumed
from holdfast.spark_app.exposure.step import StepOutput, next_timer_us
from holdfast.spark_app.operator.groups import group_numbers, key_group
from holdfast.spark_app.operator.id_segments import BASE
from holdfast.spark_app.operator.regroup import own_names, whole
from tests.support.job.exposure import (
    WINDOW,
    Batch,
    Group,
    Run,
    apply,
    at,
    moments,
    plain,
    row,
    runs,
)
from tests.support.job.stored_state import Kept, content, split

MERCHANTS = [f"m_{number}" for number in range(1, 9)]
GROUPS = st.integers(1, 16)
NOTHING = STATE_ABSORBED.empty_table()


class Groups:
    """The key groups of a checkpoint, stored as Spark stores them, and called as Spark calls them.

    Without rows, a group is called only when its timer is due.
    """

    def __init__(self, run: Run, count: int, initial: GroupState) -> None:
        self._run, self._policy = run, Policy.parse(run.policy)
        self._watermark: int | None = None
        self._begin(initial, count)

    def _begin(self, state: GroupState, count: int) -> None:
        self._numbers = group_numbers(count, 2)
        self._kept = {number: Kept() for number in self._numbers}
        for number, mine in split(state, self._numbers).items():
            self._kept[number].save(mine, mine.absorbed, self._due_ms(mine))

    def regroup(self, count: int) -> None:
        """Read all values, and store them for other groups."""
        self._begin(self.load(), count)

    def load(self) -> GroupState:
        """The state of all groups."""
        return whole(kept.load() for kept in self._kept.values())

    def batch(self, batch: Batch) -> BatchResult:
        """The rows first, then the timers that are due."""
        self._watermark = batch.watermark
        results = []
        for number, kept in self._kept.items():
            rows = [r for r in batch.rows if key_group(r.merchant_id, self._numbers) == number]
            if rows:
                results.append(self._step(kept, rows))
            armed = kept.group.armed_ms
            if armed is not None and armed * MILLISECOND_US <= (batch.watermark or 0):
                results.append(self._step(kept, []))
        return together(results)

    def _step(self, kept: Kept, rows: Sequence[Event]) -> StepOutput:
        batch = Batch(rows, self._watermark)
        before = kept.load(ids=bool(rows))
        state, output = apply(before, batch, self._policy, self._run.settings)
        kept.save(state, output.absorbed, self._due_ms(state))
        return output

    def _due_ms(self, state: GroupState) -> int | None:
        due_us = next_timer_us(state, self._watermark, self._run.settings)
        return None if due_us is None else -(-due_us // MILLISECOND_US)


def together(outputs: Sequence[StepOutput]) -> BatchResult:
    """The outputs of several groups in the documented order: by merchant first."""
    results = [plain(output) for output in outputs]
    return BatchResult(
        *(
            sorted((row for result in results for row in result[place]), key=lambda row: row[at])
            for place, at in ((0, 0), (1, 0), (2, 2))
        )
    )


def _by_merchant(state: GroupState) -> dict[str, Any]:
    """A state in plain words; the ids of each window and merchant in their order."""
    ids: dict[Any, list[str]] = {}
    for kept in state.absorbed.to_pylist():
        ids.setdefault((kept["window_end"], kept["merchant_id"]), []).append(kept["event_id"])
    return content(state) | {"ids": ids}


def _settled(merchants: Sequence[str], moment: int | None) -> GroupState:
    """The state of a checkpoint that begins after a published past, with these holds."""
    until = None if moment is None else moment // WINDOW * WINDOW
    held = [{"merchant_id": merchant, "held": True, "latest_end": until} for merchant in merchants]
    return resumed(until, pa.Table.from_pylist(held, schema=STATE_MERCHANTS), Settings())


@st.composite
def beginnings(draw: st.DrawFn) -> GroupState:
    """Nothing, or what a stream has published."""
    moment = draw(st.none() | moments(-25, 60))
    holds = [] if moment is None else draw(st.lists(st.sampled_from(MERCHANTS), unique=True))
    return _settled(holds, moment)


@pytest.mark.rest
@given(runs(MERCHANTS), beginnings(), st.data())
@settings(max_examples=50, deadline=None)
def test_merged_and_split_groups_decide_as_undisturbed_ones(
    run: Run, beginning: GroupState, data: st.DataObject
) -> None:
    policy, one = Policy.parse(run.policy), beginning
    groups = Groups(run, data.draw(GROUPS), beginning)
    for batch in run.batches:
        one, expected = apply(one, batch, policy, run.settings)
        assert groups.batch(batch) == plain(expected)
        assert _by_merchant(groups.load()) == _by_merchant(one)
        for count in data.draw(st.lists(GROUPS, max_size=2)):
            groups.regroup(count)


@pytest.mark.rest
@given(runs(MERCHANTS), st.none() | moments(-25, 60), st.tuples(GROUPS, GROUPS, GROUPS), st.data())
@settings(max_examples=40, deadline=None)
def test_three_groupings_of_one_run_equal_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    run: Run,
    moment: int | None,
    counts: tuple[int, int, int],
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.getbasetemp() / "regrouped.toml"
    path.write_text(run.policy)
    beginning = _settled([], moment)
    naive = Reference(
        path,
        late_cutoff_us=run.settings.late_cutoff_us,
        settled_until_us=beginning.settled_until_us or 0,
    )
    groups = Groups(run, counts[0], beginning)
    places = sorted(data.draw(st.tuples(*[st.integers(0, len(run.batches))] * 2)))
    for number, batch in enumerate(run.batches):
        for place, count in zip(places, counts[1:], strict=True):
            if place == number:
                groups.regroup(count)
        assert groups.batch(batch) == naive.batch(list(batch.rows), batch.watermark)


@pytest.mark.rest
@given(runs(MERCHANTS), beginnings(), GROUPS)
@settings(max_examples=25, deadline=None)
def test_a_state_that_is_split_and_merged_is_the_state(
    run: Run, state: GroupState, count: int
) -> None:
    policy, numbers = Policy.parse(run.policy), group_numbers(count, 3)
    for batch in run.batches:
        state, _ = apply(state, batch, policy, run.settings)
        parts = split(state, numbers)
        assert tuple(parts) == numbers
        for number, part in parts.items():
            assert part.settled_until_us == state.settled_until_us
            for merchants in (part.windows, part.merchants, part.absorbed):
                rows = merchants["merchant_id"].to_pylist()
                assert {key_group(merchant, numbers) for merchant in rows} <= {number}
        again = whole(parts.values())
        assert again.windows.equals(state.windows)
        assert again.merchants.equals(state.merchants)
        assert _by_merchant(again) == _by_merchant(state)


def test_ids_of_many_segments_become_one_segment_of_each_new_group() -> None:
    kept, group = Kept(), Group()
    for number in range(BASE + 3):
        rows = (row(f"e{number}", "12:00", 1, merchant) for merchant in ("m", "other"))
        group.batch(None, *rows)
        kept.save(group.state, group.output.absorbed)
    assert len(kept.ids) == 4
    numbers = group_numbers(7, 2)
    for number, state in split(whole([kept.load()]), numbers).items():
        new = Kept()
        new.save(state, state.absorbed)
        owned = [m for m in ("m", "other") if key_group(m, numbers) == number]
        assert len(new.ids) == len(owned)
        expected = [(m, "12:15", f"e{n}") for n in range(BASE + 3) for m in owned]
        group.state = new.load()
        assert group.absorbed == expected


def test_a_frame_of_ids_names_the_merchants_of_its_own_group_only() -> None:
    state = Group().batch(None, *(row(f"e{n}", "12:00", 1, f"m_{n}") for n in range(500))).state
    parts = split(state, group_numbers(50, 2)).values()
    ids = [own_names(part.absorbed).drop_columns("window_end") for part in parts]
    assert sum(b"m_499" in encode_part("absorbed", each) for each in ids) == 1


def test_the_latest_settled_frontier_counts() -> None:
    parts = [_settled([], at(moment)) for moment in ("12:15", "12:45", "12:30")]
    assert whole([*parts, GroupState.empty()]).settled_until_us == at("12:45")
    assert whole([]).is_empty


def test_a_merchant_of_two_groups_is_refused() -> None:
    state = Group().batch(None, row("a", "12:00", 1, "m_7")).state
    with pytest.raises(StateError, match="Merchant m_7 is in the state of two key groups"):
        whole([state, GroupState.empty(), state])
