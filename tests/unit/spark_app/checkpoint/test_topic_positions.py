"""What a checkpoint reads next, compared with what a cluster has."""

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.checkpoint.topic_positions import (
    gaps,
    passed,
    positions,
    require_records,
    to_line,
)
from holdfast.spark_app.input.broker import Broker, Partition, Range
from holdfast.spark_app.input.sources import Kafka

P0, P1 = Partition("pay", 0), Partition("pay", 1)
SOURCE = Kafka("pay", cluster_id="c", topic_ids=(("pay", "one"),))
SAME = {"pay": "one"}


def _gaps(at: dict[Partition, int], available: dict[Partition, Range], ids: dict[str, str]) -> Any:
    return [(gap.partition, gap.after) for gap in gaps(SOURCE, ids, at, available)]


def test_a_position_that_the_topic_still_has_is_no_gap() -> None:
    for position in (5, 7, 9):
        assert _gaps({P0: position}, {P0: Range(5, 9)}, SAME) == []


@pytest.mark.parametrize(
    ("at", "available", "ids", "after"),
    [
        ({P0: 4}, {P0: Range(5, 9)}, SAME, [(P0, 5)]),
        ({P0: 10}, {P0: Range(5, 9)}, SAME, [(P0, 9)]),
        ({P0: 7}, {P0: Range(0, 20)}, {"pay": "two"}, [(P0, 0)]),
        ({P0: 7}, {P0: Range(0, 0)}, {"pay": "two"}, [(P0, 0)]),
        ({P0: 7}, {}, {}, [(P0, None)]),
        ({P0: 7}, {P0: Range(0, 9), P1: Range(0, 3)}, SAME, []),
        ({P0: 7}, {P0: Range(0, 9), P1: Range(2, 3)}, SAME, [(P1, 2)]),
    ],
    ids=["retention", "truncated", "anew", "anew-empty", "deleted", "added", "added-late"],
)
def test_each_way_to_lose_records_is_a_gap(
    at: dict[Partition, int],
    available: dict[Partition, Range],
    ids: dict[str, str],
    after: list[tuple[Partition, int | None]],
) -> None:
    assert _gaps(at, available, ids) == after
    moved = passed(at, gaps(SOURCE, ids, at, available))
    assert _gaps(moved, available, SAME) == []


@given(
    st.dictionaries(
        st.builds(Partition, st.sampled_from(["pay", "a.b"]), st.integers(0, 9)),
        st.integers(0, 2**62),
    )
)
def test_a_line_of_a_plan_is_read_as_it_was_written(at: dict[Partition, int]) -> None:
    assert positions(to_line(at)) == at


@pytest.mark.parametrize(
    "line", ["-", "3", "[]", '{"pay":5}', '{"pay":{"x":1}}', '{"logOffset":1}']
)
def test_another_line_is_not_a_position(line: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        positions(line)


@dataclass
class _Files:
    """The files of a checkpoint, in memory."""

    texts: dict[str, str]
    checkpoint: str = "/checkpoint"
    written: list[str] = field(default_factory=list)

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def replace(self, name: str, text: str) -> None:
        self.texts[name] = text
        self.written.append(name)

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)

    def damaged(self, name: str) -> CommandError:
        return CommandError(f"{name} is damaged")


@dataclass
class _Broker:
    ids: dict[str, str]
    there: dict[Partition, Range]

    def topic_ids(self, _source: Kafka) -> dict[str, str]:
        return self.ids

    def ranges(self, _source: Kafka) -> dict[Partition, Range]:
        return self.there


def _plan(at: dict[Partition, int]) -> str:
    return f"v1\n{json.dumps({'batchWatermarkMs': 0})}\n{to_line(at)}"


def _require(files: _Files, broker: _Broker, newest: int, committed: int, accept: bool) -> Kafka:
    from holdfast.spark_app.checkpoint.files import Planned

    planned = None if newest < 0 else Planned(newest, 0, ())
    [found] = require_records(
        cast("CheckpointFiles", files),
        (SOURCE,),
        cast("Broker", broker),
        planned,
        None if committed < 0 else committed,
        accept=accept,
    )
    assert isinstance(found, Kafka)
    return found


def test_gap_is_refused_unless_a_person_accepts_it(capsys: pytest.CaptureFixture[str]) -> None:
    files = _Files({"offsets/0": _plan({P0: 3})})
    broker = _Broker(SAME, {P0: Range(5, 9)})
    with pytest.raises(CommandError) as raised:
        _require(files, broker, 0, 0, accept=False)
    assert "the offsets 3 to 4 are gone" in str(raised.value)
    assert files.written == []
    assert _require(files, broker, 0, 0, accept=True) == SOURCE
    assert "the offsets 3 to 4 are gone" in capsys.readouterr().err
    assert files.texts == {"offsets/0": _plan({P0: 5})}
    _require(files, broker, 0, 0, accept=False)


def test_a_batch_that_was_planned_reads_what_is_left_of_it() -> None:
    files = _Files({"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 7, P1: 1})})
    _require(files, _Broker(SAME, {P0: Range(5, 9), P1: Range(0, 1)}), 1, 0, accept=True)
    assert files.texts == {"offsets/0": _plan({P0: 5}), "offsets/1": _plan({P0: 7, P1: 1})}
    _require(files, _Broker(SAME, {P0: Range(8, 9), P1: Range(0, 1)}), 1, 0, accept=True)
    assert files.texts == {"offsets/0": _plan({P0: 8}), "offsets/1": _plan({P0: 8, P1: 1})}


def test_batch_planned_beyond_the_end_is_refused_or_ends_there() -> None:
    plans = {"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 7, P1: 1})}
    files = _Files(dict(plans))
    broker = _Broker(SAME, {P0: Range(0, 5)})
    with pytest.raises(CommandError) as raised:
        _require(files, broker, 1, 0, accept=False)
    assert "ends at offset 5, and a batch was to read it up to 7" in str(raised.value)
    assert "partition 1, is gone" in str(raised.value)
    assert files.texts == plans
    _require(files, broker, 1, 0, accept=True)
    assert files.texts == {"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 5})}
    _require(files, broker, 1, 0, accept=False)
    _require(_Files(dict(plans)), broker, 1, 1, accept=True)


def test_recreated_topic_is_read_from_its_start(capsys: pytest.CaptureFixture[str]) -> None:
    files = _Files({"offsets/0": _plan({P0: 3}), "offsets/1": _plan({P0: 7})})
    broker = _Broker({"pay": "two"}, {P0: Range(0, 50)})
    result = _require(files, broker, 1, 0, accept=True)
    assert result.topic_ids == (("pay", "two"),)
    assert files.texts == {"offsets/0": _plan({P0: 0}), "offsets/1": _plan({P0: 0})}
    assert "made again under its name" in capsys.readouterr().err


def test_topic_start_is_checked_before_its_first_batch() -> None:
    initial = "\0v1\n" + to_line({P0: 3})
    files = _Files({"sources/0/0": initial})
    gone = _Broker(SAME, {P0: Range(5, 9)})
    with pytest.raises(CommandError):
        _require(files, gone, -1, -1, accept=False)
    _require(files, gone, -1, -1, accept=True)
    assert files.texts == {}
    files = _Files({"sources/0/0": initial, "offsets/0": _plan({P0: 7})})
    _require(files, gone, 0, -1, accept=True)
    assert files.texts == {"sources/0/0": "\0v1\n" + to_line({P0: 5}), "offsets/0": _plan({P0: 7})}


def test_a_damaged_line_is_named() -> None:
    files = _Files({"offsets/0": "v1\n{}\nnothing"})
    with pytest.raises(CommandError, match="offsets/0"):
        _require(files, _Broker(SAME, {}), 0, 0, accept=False)
