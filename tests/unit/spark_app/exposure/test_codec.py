"""Parts of the state as bytes: restored exactly, or refused in words."""

import pyarrow as pa
import pytest

from holdfast.spark_app.exposure import codec
from holdfast.spark_app.exposure.codec import PARTS, decode_part, encode_part
from holdfast.spark_app.exposure.errors import StateError, StateTooNew
from tests.support.job.exposure import Group, row


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


def test_a_part_comes_back_as_it_was(name: str, part: pa.Table, frame: bytes) -> None:
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
        StateError, match=r"Expected part windows of version 2 .* found part merchants"
    ):
        decode_part("windows", frame)


def test_a_newer_version_is_refused_with_what_to_do(
    name: str, part: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "VERSION", 3)
        frame = encode_part(name, part)
    with pytest.raises(
        StateTooNew, match=r"version 3 .* reads up to 2.*run the newer version again"
    ):
        decode_part(name, frame)


def test_other_columns_under_the_same_version_are_refused(
    part: pa.Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = part.drop_columns(part.column_names[-1])
    with monkeypatch.context() as patch:
        patch.setitem(PARTS, name, fewer.schema)  # type: ignore[arg-type] # a dict, in truth
        frame = encode_part(name, fewer)
    with pytest.raises(StateError, match=f"Expected part {name}"):
        decode_part(name, frame)


def test_an_older_version_is_refused(
    name: str, part: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(codec, "VERSION", 1)
        frame = encode_part(name, part)
    with pytest.raises(StateError, match=f"Expected part {name} of version 2 .* of version 1"):
        decode_part(name, frame)
