"""Which records a batch read from a topic, by what Spark wrote into its checkpoint."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.deploy.local.demo import topic_batches
from holdfast.sink.contract.exits import CommandError


def _checkpoint(folder: Path, ends: Sequence[dict[str, int]], *, recorded: int) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch_id, end in enumerate(ends):
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps({"events": end}), "-"]
        (folder / "offsets" / str(batch_id)).write_text("\n".join(lines))
        if batch_id < recorded:
            (folder / "commits" / str(batch_id)).write_text("v1")
    return folder


def test_batches_are_those_that_spark_recorded(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, [{"0": 1}, {"0": 1, "1": 2}, {"0": 5, "1": 2}], recorded=2)
    ends = topic_batches.planned(folder, "events")
    assert ends == [{0: 1}, {0: 1, 1: 2}]
    records = {0: ["a", "d"], 1: ["b", "c"]}
    assert topic_batches.batches([*ends, ends[-1]], records) == [["a"], ["b", "c"], []]


def test_a_batch_that_ends_before_the_last_one_is_told() -> None:
    for behind in ({0: 1}, {1: 2}):
        with pytest.raises(CommandError, match="batch 1 ends before"):
            topic_batches.batches([{0: 2}, behind], {0: ["a", "b"], 1: ["c", "d"]})


def test_a_checkpoint_without_its_first_batches_is_told(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, [{"0": 1}, {"0": 2}], recorded=2)
    (folder / "commits" / "0").unlink()
    with pytest.raises(CommandError, match="no longer has all"):
        topic_batches.planned(folder, "events")
