"""The state of exposure: as bytes, resumed without a checkpoint, and in the founding example."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.deploy.local.demo.reference import BatchResult, Decision, Emission, Late, Reference
from holdfast.spark_app.exposure import codec
from holdfast.spark_app.exposure.codec import PARTS, decode_part, encode_part
from holdfast.spark_app.exposure.errors import StateError, StateTooNew
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import STATE_MERCHANTS
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState, resumed
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
    policies,
    row,
    runs,
    splits,
)
from tests.support.job.stored_state import Kept


def _parts(group: Group) -> dict[str, pa.Table]:
    state = group.state
    return {
        "windows": state.windows.drop_columns("window_end"),
        "merchants": state.merchants,
        "absorbed": state.absorbed.drop_columns("window_end"),
    }


@pytest.fixture(params=PARTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def part(name: str) -> pa.Table:
    """Open and emitted windows, a hold, ids, and a merchant that has emitted nothing yet."""
    group = Group().batch(
        None,
        row("a", "12:00", 9_000_000),
        row("b", "12:16", 1, "other"),
        row("é\U0001f389", "12:20", -3),
    )
    return _parts(group.batch("12:15"))[name]


@pytest.fixture
def frame(name: str, part: pa.Table) -> bytes:
    return encode_part(name, part)


def test_part_survives_a_round_trip(name: str, part: pa.Table, frame: bytes) -> None:
    restored = decode_part(name, frame)
    assert restored.schema.equals(PARTS[name], check_metadata=True)
    restored.validate(full=True)
    assert restored.to_pylist() == part.to_pylist()
    assert encode_part(name, restored) == frame


def test_an_empty_part_comes_back_empty(name: str) -> None:
    empty = PARTS[name].empty_table()
    assert decode_part(name, encode_part(name, empty)).equals(empty)


def test_bytes_do_not_depend_on_chunks(name: str, part: pa.Table, frame: bytes) -> None:
    chunks = pa.concat_tables([part.slice(i, 1) for i in range(part.num_rows)])
    assert encode_part(name, chunks) == frame


def test_a_frame_cut_anywhere_is_refused(name: str, frame: bytes) -> None:
    for length in [*range(0, len(frame), 7), len(frame) - 1]:
        with pytest.raises(StateError, match=r"ends before|is cut"):
            decode_part(name, frame[:length])


def test_any_changed_byte_is_refused(name: str, frame: bytes) -> None:
    for place in range(0, len(frame), 5):
        damaged = bytearray(frame)
        damaged[place] ^= 0x10
        with pytest.raises(StateError):
            decode_part(name, bytes(damaged))


@pytest.mark.parametrize("data", [b"x" * 500, b"HFS1" + b"\0" * 12])
def test_other_bytes_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(StateError):
        decode_part(name, data)


def test_bytes_behind_a_frame_are_refused(name: str, frame: bytes) -> None:
    with pytest.raises(StateError, match="followed by 3 bytes"):
        decode_part(name, frame + b"abc")


def test_another_part_is_refused() -> None:
    frame = encode_part("merchants", PARTS["merchants"].empty_table())
    with pytest.raises(
        StateError, match=r"Expected part windows of version 2 or 3 .* found part merchants"
    ):
        decode_part("windows", frame)


def test_a_newer_version_is_refused_with_what_to_do(
    name: str, part: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "version_of", lambda _: 4)
        frame = encode_part(name, part)
    with pytest.raises(
        StateTooNew, match=r"version 4 .* reads up to 3.*run the newer version again"
    ):
        decode_part(name, frame)


def test_other_columns_under_the_same_version_are_refused(
    part: pa.Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = part.drop_columns(part.column_names[1])
    with monkeypatch.context() as patch:
        patch.setitem(PARTS, name, fewer.schema)  # type: ignore[arg-type] # a dict, in truth
        frame = encode_part(name, fewer)
    with pytest.raises(StateError, match=f"Expected part {name}"):
        decode_part(name, frame)


def test_an_older_version_is_refused(
    name: str, part: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "version_of", lambda _: 1)
        frame = encode_part(name, part)
    with pytest.raises(StateError, match=f"Expected part {name} of version 2 or 3 .* of version 1"):
        decode_part(name, frame)


SETTINGS = Settings()
OVER = 6_000_000


def _holds(*holds: tuple[str, int | None]) -> pa.Table:
    rows = [{"merchant_id": m, "held": True, "latest_end": end} for m, end in holds]
    return pa.Table.from_pylist(rows, schema=STATE_MERCHANTS)


def _resumed(frontier: str | None, *holds: tuple[str, str]) -> Group:
    group = Group()
    held = _holds(*((merchant, at(end)) for merchant, end in holds))
    group.state = resumed(None if frontier is None else at(frontier), held, group.settings)
    return group


def _feed(state: GroupState, batches: Sequence[Batch], policy: Policy) -> list[BatchResult]:
    """What came out of each batch."""
    results = []
    for batch in batches:
        state, output = apply(state, batch, policy, SETTINGS)
        results.append(plain(output))
    assert not state.merchants.num_rows
    return results


def _published(results: Sequence[BatchResult]) -> tuple[list[Emission], list[Decision]]:
    """All windows and all decisions, each merchant's in their order."""
    windows = [Emission(*window) for result in results for window in result.windows]
    decisions = [Decision(*decision) for result in results for decision in result.decisions]
    return windows, decisions


@pytest.mark.rest
@given(policies(), splits(), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_stream_recovers_from_a_lost_checkpoint(
    text: str, split: tuple[list[Batch], list[Batch]], data: st.DataObject
) -> None:
    before, after = split
    policy = Policy.parse(text)
    undisturbed = _feed(GroupState.empty(), before, policy)

    lost_after = data.draw(st.integers(0, len(before)))
    windows, decisions = _published(undisturbed[:lost_after])
    frontier = max((w.window_end for w in windows), default=None)
    watermark = before[lost_after - 1].watermark if lost_after else None
    if watermark is not None and data.draw(st.booleans()):
        frontier = watermark // WINDOW * WINDOW  # another group has published up to here
    last = {d.merchant_id: d.action for d in decisions}
    newest = {w.merchant_id: w.window_end for w in windows}
    holds = [(m, newest[m]) for m, action in last.items() if action == "block"]

    state = resumed(frontier, _holds(*holds), SETTINGS)
    results = _feed(state, after, policy)
    again = _published(results)

    assert all(frontier is None or w.window_end > frontier for rows in again for w in rows)
    whole_windows, whole_decisions = _published(undisturbed)
    assert Counter([*windows, *again[0]]) == Counter(whole_windows)
    assert Counter([*decisions, *again[1]]) == Counter(whole_decisions)
    settled = [
        (row.merchant_id, row.event_id, row.amount_minor, row.occurred_at_us)
        for batch in after
        for row in batch.rows
        if frontier is not None and row.occurred_at_us < frontier
    ]
    refused = [Late(*late) for result in results for late in result.late]
    assert {late.reason for late in refused} <= {"duplicate", "settled"}
    kept = [
        (late.merchant_id, late.event_id, late.amount_minor, late.occurred_at)
        for late in refused
        if late.reason == "settled"
    ]
    assert Counter(kept) == Counter(settled)


@pytest.mark.rest
@given(runs(), moments(-25, 60))
@settings(max_examples=examples(150), deadline=None)
def test_a_run_that_begins_settled_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, run: Run, moment: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "settled.toml"
    path.write_text(run.policy)
    until, policy = moment // WINDOW * WINDOW, Policy.parse(run.policy)
    cutoff = run.settings.late_cutoff_us
    naive = Reference(path, late_cutoff_us=cutoff, settled_until_us=until)
    state = resumed(until, _holds(), run.settings)
    for batch in run.batches:
        state, output = apply(state, batch, policy, run.settings)
        assert plain(output) == naive.batch(list(batch.rows), batch.watermark)


def test_late_rule_applies_before_the_settled_window() -> None:
    group = _resumed("12:15")
    group.batch("12:16:59", row("a", "12:01", 1), row("b", "11:59", 1))
    assert group.refused == [("late", "b"), ("settled", "a")]
    group.batch("12:16:59", row("a", "12:01", 1, future_dated=True))
    assert group.refused == [("future_dated", "a")]
    group.batch("12:17", row("a", "12:01", 1))
    assert group.refused == [("late", "a")]
    assert group.state.is_empty


def test_row_of_a_settled_window_is_recorded_although_its_id_is_known() -> None:
    group = _resumed("12:15").batch(None, row("a", "12:16", 1))
    group.batch(None, row("a", "12:01", 1))
    assert group.refused == [("settled", "a")]


def test_repeated_id_is_a_duplicate_past_the_settled_cutoff() -> None:
    group = _resumed("12:15").batch(None, row("a", "12:16", 1))
    group.batch("12:17", row("a", "12:01", 1))
    assert group.refused == [("duplicate", "a")]
    group.batch("12:17", row("a", "12:01", 1))
    assert group.refused == [("duplicate", "a")]


def test_windows_after_the_frontier_start_empty() -> None:
    group = _resumed("12:15").batch(None, row("a", "12:16", OVER)).batch("12:30")
    assert group.decided == [("m", "block", "12:30", 1, OVER)]


def test_a_hold_is_not_repeated_and_ends_where_it_would_have() -> None:
    group = _resumed("12:15", ("m", "12:15"), ("other", "12:15"))
    group.batch(None, row("a", "12:01", OVER), row("b", "12:16", OVER))
    assert group.decided == []
    group.batch("12:30")
    assert group.emitted == [("m", "12:30", 1, OVER), ("other", "12:30", 1, 0)]
    assert group.decided == [("other", "release", "12:30", 1, 0)]


def test_no_empty_window_is_emitted_up_to_the_frontier() -> None:
    group = _resumed("12:45", ("m", "12:15"))
    assert group.batch("12:59").emitted == []
    assert group.batch("13:00").emitted == [("m", "13:00", 1, 0)]


def test_a_hold_of_any_moment_ends_at_the_boundary_of_a_window() -> None:
    group = _resumed("12:15", ("m", "12:20"))
    assert group.timer == at("12:17")
    assert group.batch("12:30").decided == [("m", "release", "12:30", 1, 0)]


def test_a_hold_without_published_windows_is_kept_too() -> None:
    group = _resumed(None, ("m", "12:15"))
    assert group.timer == at("12:30")
    group.batch("12:20", row("a", "12:16", OVER))
    assert group.batch("12:30").decided == []


def test_a_hold_without_a_moment_is_refused() -> None:
    with pytest.raises(StateError, match="Merchant m is held"):
        resumed(None, _holds(("m", None)), SETTINGS)


def test_merchants_with_holds_are_listed_in_order() -> None:
    rows = [
        {"merchant_id": "b", "held": True, "latest_end": at("12:15")},
        {"merchant_id": "a", "held": True, "latest_end": None},
        {"merchant_id": "c", "held": False, "latest_end": None},
    ]
    state = resumed(at("12:15"), pa.Table.from_pylist(rows, schema=STATE_MERCHANTS), SETTINGS)
    assert state.merchants["merchant_id"].to_pylist() == ["a", "b"]
    assert state.merchants.schema.equals(STATE_MERCHANTS)


E917 = row("e917", "12:16", 1_500_000, "m_482")
E918 = row("e918", "12:19", 2_000_000, "m_482")
E919 = row("e919", "12:22", 500_000, "m_482")
E920 = row("e920", "12:24", -1_800_000, "m_482")


@pytest.fixture
def blocked() -> Group:
    """The world before e920: blocked at 12:15, and the next window open at $40,000."""
    group = Group()
    group.batch(None, row("e900", "12:05", 8_500_000, "m_482"))
    group.batch("12:16", E917, E918, E919)
    assert group.emitted == [("m_482", "12:15", 1, 8_500_000)]
    assert group.decided == [("m_482", "block", "12:15", 1, 8_500_000)]
    group.batch("12:21:30")
    assert group.windows == [("m_482", "12:30", 0, 4_000_000)]
    assert group.ids == ["e917", "e918", "e919"]
    return group


def test_timers_emit_at_the_end_and_forget_at_the_cutoff(blocked: Group) -> None:
    assert blocked.timer == at("12:30")
    blocked.batch("12:30")
    assert blocked.timer == at("12:32")


@pytest.mark.parametrize("sees_e920_again", [True, False])
def test_release_comes_once_in_either_world(blocked: Group, sees_e920_again: bool) -> None:
    kept = Kept()
    kept.save(blocked.state, blocked.state.absorbed)
    blocked.batch("12:22", E920)
    if not sees_e920_again:
        kept.save(blocked.state, blocked.output.absorbed)

    blocked.state = kept.load()
    blocked.batch("12:22", *([E920] if sees_e920_again else []))
    blocked.batch("12:30")

    assert blocked.emitted == [("m_482", "12:30", 1, 2_200_000)]
    assert blocked.decided == [("m_482", "release", "12:30", 1, 2_200_000)]
    assert blocked.batch("12:30").decided == []
    assert blocked.batch("13:00").decided == []
    assert blocked.merchants == {}


def test_replayed_e920_is_a_duplicate_in_the_world_that_has_it(blocked: Group) -> None:
    blocked.batch("12:22", E920)
    blocked.batch("12:22", E920)
    assert blocked.refused == [("duplicate", "e920")]
    assert blocked.windows == [("m_482", "12:30", 0, 2_200_000)]
