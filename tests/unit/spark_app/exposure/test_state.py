"""State as bytes: restored exactly, and refused in words when it is not whole."""

import pyarrow as pa
import pytest

from spark_app.exposure import codec
from spark_app.exposure.errors import StateError, StateTooNew
from spark_app.exposure.state import SCHEMAS, GroupState
from tests.support.exposure import Group, row


@pytest.fixture
def group() -> Group:
    """Open, emitted and empty windows, a hold, ids, and a merchant that has emitted nothing yet."""
    group = Group().batch(
        None,
        row("a", "12:00", 9_000_000),
        row("b", "12:16", 1, "other"),
        row("é\U0001f389", "12:20", -3),
    )
    return group.batch("12:15")


@pytest.fixture
def data(group: Group) -> bytes:
    return group.state.to_bytes()


def test_state_comes_back_as_it_was(group: Group, data: bytes) -> None:
    restored = GroupState.from_bytes(data)
    for name, part in restored.parts().items():
        assert part.schema.equals(SCHEMAS[name], check_metadata=True)
        part.validate(full=True)
        assert part.equals(group.state.parts()[name])
    assert restored.to_bytes() == data


def test_empty_state_comes_back_empty() -> None:
    restored = GroupState.from_bytes(GroupState.empty().to_bytes())
    assert [part.num_rows for part in restored.parts().values()] == [0, 0, 0]


def test_state_does_not_depend_on_row_order(data: bytes) -> None:
    other = Group().batch(
        None,
        row("é\U0001f389", "12:20", -3),
        row("b", "12:16", 1, "other"),
        row("a", "12:00", 9_000_000),
    )
    assert other.batch("12:15").state.to_bytes() == data


def test_bytes_cut_anywhere_are_refused(data: bytes) -> None:
    for length in [*range(0, len(data), 7), len(data) - 1]:
        with pytest.raises(StateError, match=r"ends before|is cut"):
            GroupState.from_bytes(data[:length])


def test_any_changed_byte_is_refused(data: bytes) -> None:
    for place in range(0, len(data), 5):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(StateError):
            GroupState.from_bytes(bytes(damaged))


@pytest.mark.parametrize("data", [b"x" * 500, b"HFS1" + b"\0" * 12])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StateError):
        GroupState.from_bytes(data)


def test_bytes_behind_the_state_are_refused(data: bytes) -> None:
    with pytest.raises(StateError, match="followed by 3 bytes"):
        GroupState.from_bytes(data + b"abc")


def test_parts_in_another_order_are_refused(group: Group) -> None:
    parts = group.state.parts()
    data = b"".join(codec.encode_part(name, parts[name]) for name in reversed(parts))
    with pytest.raises(
        StateError, match=r"Expected part windows of version 1 .* found part absorbed"
    ):
        GroupState.from_bytes(data)


def test_newer_version_is_refused_with_what_to_do(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "VERSION", 2)
        data = group.state.to_bytes()
    with pytest.raises(
        StateTooNew, match=r"version 2 .* reads up to 1.*run the newer version again"
    ):
        GroupState.from_bytes(data)


def test_other_columns_under_the_same_version_are_refused(group: Group) -> None:
    parts = group.state.parts()
    data = codec.encode_part("windows", parts["windows"].drop_columns("blocks"))
    with pytest.raises(StateError, match="Expected part windows"):
        GroupState.from_bytes(data)


def test_part_can_be_stored_alone(group: Group) -> None:
    data = codec.encode_part("absorbed", group.state.absorbed)
    table, rest = codec.decode_part("absorbed", SCHEMAS["absorbed"], memoryview(data + b"next"))
    assert table.equals(group.state.absorbed)
    assert bytes(rest) == b"next"


def test_ids_are_only_appended_until_a_window_is_forgotten(group: Group) -> None:
    before = group.state.absorbed
    group.batch("12:15:01", row("b", "12:16", 1, "other"))
    assert group.state.absorbed is before  # a duplicate adds nothing

    group.batch("12:16", row("d", "12:21", 1), row("c", "12:21", 1), row("e", "12:01", 1))
    after = group.state.absorbed
    assert after.slice(0, before.num_rows).equals(before)
    assert after["event_id"].to_pylist()[before.num_rows :] == ["e", "c", "d"]

    group.batch("12:17")
    kept = pa.compute.not_equal(after["event_id"], "a")
    kept = pa.compute.and_(kept, pa.compute.not_equal(after["event_id"], "e"))
    assert group.state.absorbed.equals(after.filter(kept))
