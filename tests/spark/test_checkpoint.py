"""What a start finds in a checkpoint, and the words for one that it cannot go on with."""

import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sink import OutboxSink
from sink.contract.exits import CommandError
from spark_app.exposure.policy import Policy
from spark_app.exposure.policy_file import Limits
from spark_app.policy_history import PolicyHistory
from tests.support.jobs import POLICY, Play, at, micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_app.job import Job

pytestmark = pytest.mark.spark

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
"""A checkpoint that has recorded a batch is judged by its own files alone."""


@pytest.fixture
def play(spark: "SparkSession", tmp_path: Path) -> Play:
    """A checkpoint in which batch 1 is planned, as far as a start looks at it."""
    from spark_app.shape import Shape

    play = Play(spark, NOWHERE, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    for batch, clock in ((0, "00:00"), (1, "12:19:30")):
        described = {"batchWatermarkMs": micros(at(clock)) // 1000 if batch else 0}
        text = f'v1\n{json.dumps(described)}\n{{"logOffset":{batch}}}'
        (checkpoint / "offsets" / str(batch)).write_text(text)
    (checkpoint / "offsets" / ".1.crc").write_bytes(b"crc")
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    (checkpoint / "holdfast.json").write_text(Shape.of(play.job()).to_json())
    history = PolicyHistory.begin(Policy.parse(POLICY))
    (checkpoint / "holdfast-policy.json").write_text(history.to_json())
    return play


def _claim(play: Play) -> "Job":
    from spark_app.checkpoint import claim

    return claim(play.spark, play.job(), OutboxSink(NOWHERE, stream="payouts"))


def _complaint(play: Play) -> str:
    with pytest.raises(CommandError) as raised:
        _claim(play)
    message = str(raised.value)
    assert "\n" not in message
    assert "Nothing was read or written" in message
    return message


def test_what_spark_wrote_down_is_understood(play: Play) -> None:
    from spark_app.checkpoint_files import CheckpointFiles, Planned

    files = CheckpointFiles(play.spark, str(play.folder / "checkpoint"))
    assert files.planned() == Planned(1, micros(at("12:19:30")), '{"logOffset":1}')
    assert files.committed()
    metadata = json.loads((play.folder / "checkpoint" / "metadata").read_text())
    assert str(files.query_id()) == metadata["id"]

    new = CheckpointFiles(play.spark, str(play.folder / "new"))
    assert (new.planned(), new.committed()) == (None, False)
    assert new.query_id() == new.query_id()
    new.write("name.json", '{"version": 1}')
    new.write("name.json", '{"version": 2}')
    assert new.read_json("name.json", 2) == {"version": 2}


def test_a_checkpoint_that_goes_on_needs_neither_the_database_nor_an_initial_state(
    play: Play,
) -> None:
    job = _claim(play)
    assert job.initial is None
    assert job.policy.in_force("m_1", 0) == Limits(5_000_000, 5_000_000)


def test_a_file_that_is_missing_or_damaged_is_named(play: Play) -> None:
    checkpoint = play.folder / "checkpoint"
    policy = (checkpoint / "holdfast-policy.json").read_text()
    (checkpoint / "holdfast-policy.json").unlink()
    assert "has written batches, but holdfast-policy.json is missing" in _complaint(play)
    for text in ("{}", '{"version": 1}', '{"version": 1, "policies": []}', policy[:-20]):
        (checkpoint / "holdfast-policy.json").write_text(text)
        assert "holdfast-policy.json in the checkpoint" in _complaint(play)
    (checkpoint / "holdfast-policy.json").write_text('{"version": 2}')
    assert "written by a newer Holdfast" in _complaint(play)
    (checkpoint / "offsets" / "1").write_text("v1\n")
    assert "offsets/1 in the checkpoint" in _complaint(play)


def test_a_checkpoint_of_an_older_holdfast_is_not_taken_for_an_empty_one(play: Play) -> None:
    path = play.folder / "checkpoint" / "holdfast.json"
    kept = json.loads(path.read_text()) | {"version": 1}
    del kept["layout"], kept["spark"]
    path.write_text(json.dumps(kept))
    assert "layout of the state was 1, is 2" in _complaint(play)


def test_a_checkpoint_of_another_query_is_refused(play: Play) -> None:
    (play.folder / "checkpoint" / "holdfast.json").unlink()
    assert "that this job did not begin" in _complaint(play)


def test_a_file_that_was_about_to_take_its_name_is_found(play: Play) -> None:
    checkpoint = play.folder / "checkpoint"
    (checkpoint / "holdfast-policy.json").rename(checkpoint / ".holdfast-policy.json.part")
    assert _claim(play).policy.version == Policy.parse(POLICY).version
