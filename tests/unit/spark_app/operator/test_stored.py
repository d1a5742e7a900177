"""What is kept of a key group between batches, and how groups are merged and split."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import BatchResult, Event, Reference
from holdfast.sink.contract.canonical import INTEGER_MAX
from holdfast.sink.contract.key import Key
from holdfast.sink.rows.batch import prepare
from holdfast.spark_app.exposure.codec import encode_part
from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import (
    DECISIONS,
    ROWS,
    STATE_ABSORBED,
    STATE_MERCHANTS,
    TIMESTAMP,
)
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings
from holdfast.spark_app.exposure.state import GroupState, resumed
from holdfast.spark_app.exposure.step import StepOutput, next_timer_us
from holdfast.spark_app.input.events import REFUSED
from holdfast.spark_app.input.lines import parse_lines
from holdfast.spark_app.operator import pack as module
from holdfast.spark_app.operator import stored
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, from_blob, to_blob
from holdfast.spark_app.operator.groups import group_numbers, key_group, spark_hash
from holdfast.spark_app.operator.id_segments import BASE, plan_segment
from holdfast.spark_app.operator.output import entries, select, unpack
from holdfast.spark_app.operator.pack import PACKED, Packer
from holdfast.spark_app.operator.stored import GroupValue, SegmentKey, combined, own_names
from tests.support.examples import examples
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

NOTHING = STATE_ABSORBED.empty_table()


def _keep(kept: Kept, group: Group) -> tuple[set[int], set[SegmentKey]]:
    return kept.save(group.state, group.output.absorbed)


@pytest.mark.rest
@given(runs())
@settings(max_examples=examples(100), deadline=None)
def test_state_stored_at_each_batch_equals_the_state_in_memory(run: Run) -> None:
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


def test_windows_and_ids_expire_together_without_reading_ids() -> None:
    kept = Kept()
    group = Group().batch(None, row("a", "12:00", 1), row("b", "12:20", 1))
    _keep(kept, group)
    group.state = kept.load(ids=False)
    group.batch("12:17")
    _keep(kept, group)
    assert set(kept.windows) == {at("12:30")}
    assert set(kept.ids) == {SegmentKey(at("12:30"), 0)}


def test_only_a_settled_moment_is_kept() -> None:
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
@settings(max_examples=examples(30), deadline=None)
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
            [pa.array(lines, pa.binary()), pa.array([NOON + 30 * MINUTE] * len(lines), TIMESTAMP)],
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


def test_decision_beyond_json_integers_is_sent_with_the_maximum() -> None:
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


PROGRAM = """
import gc
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.operator.pack import Packer
from holdfast.spark_app.operator.processor import KeyGroupProcessor

policy = Policy.parse('version = "1"\\n[[default]]\\nlimit_minor = 1\\nrelease_level_minor = 1\\n')
{task}
print(len(gc.get_objects()))
"""

TASKS = {
    "pack": "list(Packer(None, policy, 0, (1, 2))(iter(())))",
    "step": "KeyGroupProcessor(policy, Settings()).close()",
}

LEFT = 1_000
"""More than a task leaves, and far less than the tens of thousands that imports make."""


@pytest.mark.parametrize("task", TASKS)
def test_collection_after_a_task_looks_at_no_imported_object(task: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(task=TASKS[task])]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert int(done.stdout) < LEFT


MERCHANTS = [f"m_{number}" for number in range(1, 9)]

GROUPS_REGROUP = st.integers(1, 16)


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
        return combined(kept.load() for kept in self._kept.values())

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
@settings(max_examples=examples(50), deadline=None)
def test_merged_and_split_groups_decide_as_undisturbed_ones(
    run: Run, beginning: GroupState, data: st.DataObject
) -> None:
    policy, one = Policy.parse(run.policy), beginning
    groups = Groups(run, data.draw(GROUPS_REGROUP), beginning)
    for batch in run.batches:
        one, expected = apply(one, batch, policy, run.settings)
        assert groups.batch(batch) == plain(expected)
        assert _by_merchant(groups.load()) == _by_merchant(one)
        for count in data.draw(st.lists(GROUPS_REGROUP, max_size=2)):
            groups.regroup(count)


@pytest.mark.rest
@given(
    runs(MERCHANTS),
    st.none() | moments(-25, 60),
    st.tuples(GROUPS_REGROUP, GROUPS_REGROUP, GROUPS_REGROUP),
    st.data(),
)
@settings(max_examples=examples(40), deadline=None)
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
@given(runs(MERCHANTS), beginnings(), GROUPS_REGROUP)
@settings(max_examples=examples(25), deadline=None)
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
        again = combined(parts.values())
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
    for number, state in split(combined([kept.load()]), numbers).items():
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
    assert combined([*parts, GroupState.empty()]).settled_until_us == at("12:45")
    assert combined([]).is_empty


def test_a_merchant_of_two_groups_is_refused() -> None:
    state = Group().batch(None, row("a", "12:00", 1, "m_7")).state
    with pytest.raises(StateError, match="Merchant m_7 is in the state of two key groups"):
        combined([state, GroupState.empty(), state])
