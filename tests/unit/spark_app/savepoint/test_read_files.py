"""The files that a source has read, from Spark's log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark_app.savepoint.read_files import entries, log_entry, log_offset

INTERVAL = 10


@given(st.integers(0, 60), st.data())
def test_the_entries_of_a_log_have_each_file_up_to_the_offset(
    last: int, data: st.DataObject
) -> None:
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
