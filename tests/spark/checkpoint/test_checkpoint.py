"""What a start finds in a checkpoint, and the words for one that it cannot go on with."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from holdfast.sink import LedgerBehind, OutboxSink, UnadoptedCheckpoint
from holdfast.sink.contract import failpoints
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.failpoints import FailpointHit
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.policy_file import Limits
from holdfast.spark_app.input.sources import Files
from tests.support.job.driver import Driver
from tests.support.job.jobs import POLICY, Play, at, micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark_app.operator.job import Job

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
"""A checkpoint that has recorded a batch is judged by its own files alone."""


@pytest.fixture
def play(spark: "SparkSession", tmp_path: Path) -> Play:
    """A checkpoint in which batch 1 is planned, as far as a start looks at it."""
    from holdfast.spark_app.checkpoint.shape import Shape

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
    (checkpoint / "holdfast.json").write_text(Shape.of(play.job()).to_json(f"file:{checkpoint}"))
    history = PolicyHistory.begin(Policy.parse(POLICY))
    (checkpoint / "holdfast-policy.json").write_text(history.to_json())
    return play


def _claim(play: Play) -> "Job":
    from holdfast.spark_app.checkpoint.journal import claim

    return claim(play.files(), play.job(), OutboxSink(NOWHERE, stream="payouts"))


def _complaint(play: Play) -> str:
    with pytest.raises(CommandError) as raised:
        _claim(play)
    message = str(raised.value)
    assert "\n" not in message
    assert "Nothing was read or written" in message
    return message


def test_what_spark_wrote_down_is_understood(play: Play) -> None:
    from holdfast.spark_app.checkpoint.files import CheckpointFiles, Planned

    files = CheckpointFiles(play.spark, str(play.checkpoint))
    assert files.planned() == Planned(1, micros(at("12:19:30")), ('{"logOffset":1}',))
    assert files.committed() == 0
    metadata = json.loads((play.checkpoint / "metadata").read_text())
    assert str(files.query_id()) == metadata["id"]

    new = CheckpointFiles(play.spark, str(play.folder / "new"))
    assert (new.planned(), new.committed()) == (None, None)
    assert new.query_id() == new.query_id()
    new.write("name.json", '{"version": 1}')
    new.write("name.json", '{"version": 2}')
    assert new.read_json("name.json", 2) == {"version": 2}


def test_continued_checkpoint_needs_no_database_and_no_initial_state(
    play: Play,
) -> None:
    job = _claim(play)
    assert job.initial is None
    assert job.policy.in_force("m_1", 0) == Limits(5_000_000, 5_000_000)


def test_database_without_finished_batches_of_checkpoint_is_refused(play: Play, dsn: str) -> None:
    """Put back to before the first batch, or another one: what was decided is not in it."""
    from holdfast.spark_app.checkpoint.journal import require_ledger

    checkpoint = play.checkpoint
    query_id = UUID(json.loads((checkpoint / "metadata").read_text())["id"])
    driver = Driver(dsn, query_id=query_id)
    with closing(driver.sink):
        # As from storage that only Hadoop reads.
        remote = {"checkpoint": checkpoint.as_uri()}
        with pytest.raises(LedgerBehind, match="finished batch 0, but the ledger has no batch"):
            require_ledger(play.files(**remote), play.job(**remote), driver.sink)
        driver.batch(0)
        require_ledger(play.files(**remote), play.job(**remote), driver.sink)
        with pytest.raises(UnadoptedCheckpoint, match="stream 'payouts' has its batches until 0"):
            require_ledger(play.files(**remote), play.job(**remote, stream="renamed"), driver.sink)
        for name in ("offsets/2", "commits/1"):
            (checkpoint / name).write_text("v1")
        with pytest.raises(LedgerBehind, match=r"finished batch 1, but .* in the ledger is 0"):
            require_ledger(play.files(**remote), play.job(**remote), driver.sink)
        new = {"checkpoint": str(play.folder / "new")}
        require_ledger(play.files(**new), play.job(**new), driver.sink)


def test_a_file_that_is_missing_or_damaged_is_named(play: Play) -> None:
    checkpoint = play.checkpoint
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


def _with_a_second_path(play: Play) -> Play:
    paths = tuple(str(play.folder / name) for name in ("events", "more"))
    return replace(play, options={"paths": paths})


@pytest.mark.parametrize("point", ["K1=raise", "K2=raise", "K2=raise@2"])
def test_a_path_is_added_whatever_dies_on_the_way(
    point: str, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.spark_app.checkpoint.files import CheckpointFiles

    checkpoint = play.checkpoint
    files = CheckpointFiles(play.spark, str(checkpoint))
    # With checksums, as Spark leaves them; of three plans, a start reads two.
    text = (checkpoint / "offsets" / "1").read_text()
    (checkpoint / "offsets" / ".1.crc").unlink()
    for batch_id in (1, 2):
        files.write(f"offsets/{batch_id}", text)
    (checkpoint / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    both = _with_a_second_path(play)
    monkeypatch.setattr(failpoints, "_passed", {})
    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "_armed", point)
        with pytest.raises(FailpointHit):
            _claim(both)
    planned = files.planned()
    assert planned
    assert planned.sources[0] == '{"logOffset":1}'
    assert f"--path {play.folder}/more is missing" in _complaint(play)

    assert [source.path for source in _claim(both).sources if isinstance(source, Files)] == [
        *both.options["paths"]
    ]
    for batch_id, added in ((0, []), (1, ["-"]), (2, ["-"])):
        assert (files.read(f"offsets/{batch_id}") or "").splitlines()[3:] == added
    assert files.planned() == planned._replace(sources=('{"logOffset":1}', "-"))
    assert {path.name for path in (checkpoint / "offsets").iterdir()} >= {".1.crc", ".2.crc"}
    (checkpoint / "offsets" / "2").write_text("v1\n{}\n-")
    assert "offsets/2 in the checkpoint" in _complaint(both)


def test_checkpoint_of_another_layout_is_not_treated_as_empty(play: Play) -> None:
    path = play.checkpoint / "holdfast.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"layout": 1}))
    assert "layout of the state was 1, is 2" in _complaint(play)
    for name in ("location", "layout"):
        path.write_text(json.dumps({each: kept[each] for each in kept if each != name}))
        assert {"location": "cannot be read", "layout": "was not set, is 2"}[name] in _complaint(
            play
        )


def test_a_checkpoint_without_its_query_id_gets_no_other_one(play: Play) -> None:
    from holdfast.spark_app.checkpoint.journal import require_ledger

    checkpoint = play.checkpoint
    (checkpoint / "metadata").unlink()
    missing = "has written batches, but metadata is missing in it"
    assert missing in _complaint(play)
    with pytest.raises(CommandError, match=missing):
        require_ledger(play.files(), play.job(), OutboxSink(NOWHERE, stream="payouts"))
    # Batch 0 alone, planned and not recorded.
    for name in ("offsets/1", "commits/0"):
        (checkpoint / name).unlink()
    assert missing in _complaint(play)
    assert not (checkpoint / "metadata").exists()


@pytest.mark.parametrize("name", ["offsets/1", "commits/0", "metadata", "holdfast.json"])
def test_a_file_that_its_checksum_belies_is_damaged(play: Play, name: str) -> None:
    from holdfast.spark_app.checkpoint.files import CheckpointFiles

    path = play.checkpoint / name
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    CheckpointFiles(play.spark, str(path.parent)).write(path.name, path.read_text())
    assert _claim(play).initial is None
    path.write_text(f"garbage {path.read_text()}")
    assert f"{name} in the checkpoint" in _complaint(play)


def test_moved_checkpoint_is_refused_with_its_original_location(play: Play) -> None:
    before = play.folder / "was here"
    path = play.checkpoint / "holdfast.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"location": f"file:{before}"}))
    complaint = _complaint(play)
    assert f"{play.folder}/checkpoint was begun in another place, '{before}', and" in complaint
    assert complaint.endswith(f"start with --checkpoint '{before}'.")
    assert not before.exists()

    play.checkpoint.rename(before)
    for same in (str(before), f"file:{before}", f"file://{before}/", f"{play.folder}/./was here"):
        play.options = {"checkpoint": same}
        assert _claim(play).initial is None
    play.checkpoint.symlink_to(before)
    play.options = {"checkpoint": str(play.checkpoint)}
    assert "was begun in another place" in _complaint(play)


def test_a_checkpoint_of_another_query_is_refused(play: Play) -> None:
    (play.checkpoint / "holdfast.json").unlink()
    assert "that this job did not begin" in _complaint(play)


def test_a_file_that_was_about_to_take_its_name_is_found(play: Play) -> None:
    checkpoint = play.checkpoint
    (checkpoint / "holdfast-policy.json").rename(checkpoint / ".holdfast-policy.json.part")
    assert _claim(play).policy.version == Policy.parse(POLICY).version
