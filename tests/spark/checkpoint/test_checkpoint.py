"""A checkpoint: which one a start accepts, what commands say of it, and when it is written."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from py4j.protocol import Py4JJavaError
from typer.testing import CliRunner

from holdfast.sink import LedgerBehind, OutboxSink, UnadoptedCheckpoint
from holdfast.sink.contract import failpoints
from holdfast.sink.contract.checkpoint import manager_jar
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.failpoints import FailpointHit
from holdfast.spark_app.checkpoint.policy_history import PolicyHistory
from holdfast.spark_app.checkpoint_manager.cli import app as commands
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.listing import listed, shown
from holdfast.spark_app.checkpoint_manager.prune import pruned
from holdfast.spark_app.checkpoint_manager.trees import RemoteTree
from holdfast.spark_app.checkpoint_manager.verify import verified
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.policy_file import Limits
from holdfast.spark_app.input.sources import Files
from tests.support.command import holdfast
from tests.support.job.driver import Driver
from tests.support.job.jobs import POLICY, Play, at, event, micros
from tests.support.servers.places import place as place_of

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
    for folder in ("offsets", "commits", "sources/0"):
        (checkpoint / folder).mkdir(parents=True)
    for batch, clock in ((0, "00:00"), (1, "12:19:30")):
        described = {"batchWatermarkMs": micros(at(clock)) // 1000 if batch else 0}
        text = f'v1\n{json.dumps(described)}\n{{"logOffset":{batch}}}'
        (checkpoint / "offsets" / str(batch)).write_text(text)
        (checkpoint / "sources" / "0" / str(batch)).write_text("v1")
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


def test_continued_checkpoint_needs_no_database_and_no_initial_state(play: Play) -> None:
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


def test_file_replaced_without_its_checksum_is_read(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop renames a file and then its checksum: a kill between the two leaves the old one."""
    from holdfast.spark_app.checkpoint.files import CheckpointFiles

    files = CheckpointFiles(spark, str(tmp_path))
    files.write("plan", "as it was")
    monkeypatch.setattr(failpoints, "_passed", {})
    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "_armed", "K2=raise")
        with pytest.raises(FailpointHit):
            files.replace("plan", "as it is")
    assert files.read("plan") == "as it was"
    (tmp_path / ".plan.part").replace(tmp_path / "plan")
    assert files.read("plan") == "as it is"


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


def test_checksum_of_an_older_driver_replaces_none_of_a_newer_one(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one stands still behind its link, and the newer one removes its file meanwhile."""
    from holdfast.spark_app.checkpoint.files import CheckpointFiles

    older, newer = (CheckpointFiles(spark, str(tmp_path)) for _ in range(2))
    link = os.link

    def linked(draft: str, name: str) -> None:
        monkeypatch.setattr(os, "link", link)
        link(draft, name)
        Path(name).unlink()
        newer.create("plan", "newer")

    monkeypatch.setattr(os, "link", linked)
    older.create("plan", "the older one's")
    assert newer.read("plan") == "newer"  # with its checksum


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


NEWEST = 3


@pytest.fixture(scope="module")
def made(shared_play: Play) -> Play:
    """A checkpoint with a few batches, which is only read."""
    files = ([event(f"e{number}", f"12:{number:02}", 1)] for number in range(NEWEST))
    shared_play.put(*files)
    shared_play.command()
    return shared_play


def _said(*words: str) -> str:
    """Return what a command prints, in this process."""
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == ExitCode.OK, done.output
    return str(done.stdout)


def _names(answer: Any) -> set[str]:
    """The names of all fields of an answer, but those that are data: settings and kinds."""
    if isinstance(answer, list):
        return set().union(*map(_names, answer))
    if not isinstance(answer, dict):
        return set()
    nested = (v for k, v in answer.items() if k not in ("spark", "pinned", "settings", "changes"))
    return {*answer}.union(*map(_names, nested))


@pytest.mark.rest
def test_fields_are_named_as_in_the_rest_of_the_product(made: Play) -> None:
    where, batch = ("--checkpoint", str(made.checkpoint), "--json"), str(NEWEST - 2)
    answers = [
        json.loads(_said(*words, *where))
        for words in (
            ("list",),
            ("show", "--batch", batch),
            ("verify",),
            ("prune", "--keep-last", "2", "--dry-run"),
        )
    ]
    for answer in answers:
        assert (answer["checkpoint"], answer["stream"]) == (str(made.checkpoint), "payouts")
        assert _names(answer).isdisjoint(
            {"batch", "newest", "oldest", "planned", "previous", "at", "outbox_at", "judged_at"}
        )
    listed, shown, verified, _ = answers
    [same] = [each for each in listed["batches"] if each["batch_id"] == NEWEST - 2]
    assert same.items() <= shown.items()
    assert listed["last_batch_id"] == verified["last_batch_id"] == NEWEST


@pytest.mark.rest
def test_list_and_show_read_an_optional_ledger_from_the_environment(made: Play) -> None:
    where = ("--checkpoint", str(made.checkpoint))
    commands = {"list": (), "show": ("--batch", str(NEWEST))}
    for verb, options in commands.items():
        words = ("job", "checkpoints", verb, *where, *options)
        with_it = holdfast(*words, "--json", dsn=made.dsn, process=False)
        assert with_it.returncode == ExitCode.OK, with_it.stderr
        answer = json.loads(with_it.stdout)
        newest = answer["batches"][0] if verb == "list" else answer
        assert newest["written_at"]
        without = holdfast(*words, process=False)
        assert without.returncode == ExitCode.OK
        assert without.stdout.count("The ledger's times are missing: pass --dsn or set") == 1
        gone = holdfast(*words, dsn="host=127.0.0.1 port=1", process=False)
        assert (gone.returncode, gone.stdout) == (ExitCode.OK, without.stdout)
        assert gone.stderr.startswith("the ledger's times are missing: SinkUnavailable")
        assert len(gone.stderr.splitlines()) == 1


@pytest.mark.rest
def test_show_names_a_snapshot_by_its_batch(made: Play) -> None:
    answer = shown(Folder(str(made.checkpoint)), NEWEST, None)
    for each in answer["state"]:
        at = f"state/{each['operator']}/{each['partition']}"
        [name] = [
            f["file"] for f in answer["files"] if f["file"].endswith(".zip") and at in f["file"]
        ]
        # The state after batch N is version N + 1.
        assert name.startswith(f"{at}/{each['snapshot_batch_id'] + 1}_")
        assert each["changelogs"] == NEWEST - each["snapshot_batch_id"]
    text = _said("show", "--batch", str(NEWEST), "--checkpoint", str(made.checkpoint))
    assert f"snapshot of batch {answer['state'][0]['snapshot_batch_id']} and" in text


@pytest.mark.rest
def test_verify_prints_the_command_that_removes_what_no_batch_needs(
    made: Play, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(made.checkpoint, tmp_path / "checkpoint"))
    stale = copied / "state/0/0" / f"1_{uuid4()}.changelog"
    stale.write_bytes(b"x")
    (copied / "removed-1").mkdir()
    answer, code = verified(Folder(str(copied)))
    assert code == ExitCode.DEGRADED
    assert f"{stale.relative_to(copied)}, removed-1/" in answer["advice"][-1]
    words = answer["advice"][-1].partition(": holdfast ")[2].split()
    done = holdfast(*words, dsn=made.dsn, process=False)
    assert done.returncode == ExitCode.OK, done.stderr
    answer, code = verified(Folder(str(copied)))
    assert (code, answer["advice"]) == (ExitCode.OK, [])
    assert not (copied / "removed-1").exists()


@pytest.fixture
def copied(made: Play, tmp_path: Path) -> Path:
    """A copy of the checkpoint, which may be changed."""
    return Path(shutil.copytree(made.checkpoint, tmp_path / "checkpoint"))


@pytest.fixture(
    params=[
        "disk",
        pytest.param("hdfs", marks=pytest.mark.long),
        pytest.param("s3", marks=pytest.mark.long),
        pytest.param("gcs", marks=pytest.mark.long),
    ]
)
def remote(
    request: pytest.FixtureRequest, spark: "SparkSession", copied: Path, tmp_path: Path
) -> Iterator[RemoteTree]:
    """The copy, read through Hadoop: on the local disk, or as a copy of it elsewhere."""
    (tmp_path / "place").mkdir()
    with place_of(request.param, tmp_path / "place", spark) as uri:
        if request.param != "disk":
            tree = RemoteTree(spark, uri)
            tree._system.copyFromLocalFile(
                tree._jvm.org.apache.hadoop.fs.Path(str(copied)), tree._root
            )
        yield RemoteTree(spark, f"file://{copied}" if request.param == "disk" else uri)


@pytest.mark.rest
def test_checkpoint_is_read_and_pruned_alike_through_hadoop(
    remote: RemoteTree, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, folder = Folder(str(copied)), Folder(remote)
    reads: Counter[str] = Counter()
    content = remote.content

    def counted(name: str) -> bytes:
        reads[name] += 1
        return content(name)

    monkeypatch.setattr(remote, "content", counted)
    assert {name: stat.size for name, stat in folder.files.items()} == {
        name: stat.size for name, stat in before.files.items()
    }
    asked: tuple[Callable[[Folder], Any], ...] = (
        verified,
        lambda each: listed(each, None),
        lambda each: shown(each, NEWEST, None),
    )
    for ask in asked:
        assert _without_place(ask(folder)) == _without_place(ask(before))
    assert set(reads.values()) == {1}
    assert reads.keys() == folder.files.keys()
    planned = pruned(before, 1, 0, dry_run=True)["removed_files"]
    assert planned
    assert pruned(folder, 1, 0, dry_run=False)["removed_files"] == planned
    after = folder.again()
    assert before.files.keys() - after.files.keys() == set(planned)
    answer, code = verified(after)
    assert code == ExitCode.OK, answer
    after.tree.put("holdfast-retention.json", "{")
    assert verified(after.again())[0]["damaged"][0]["file"] == "holdfast-retention.json"


def _without_place(answer: Any) -> Any:
    """An answer without what depends on where the checkpoint lies, and when it was copied."""
    if isinstance(answer, tuple):
        return _without_place(answer[0]), answer[1]
    if isinstance(answer, list):
        return [_without_place(each) for each in answer]
    if isinstance(answer, dict):
        return {
            name: _without_place(value)
            for name, value in answer.items()
            if name not in ("checkpoint", "moved_from", "advice", "phases_ms")
            and not name.endswith("_at")
        }
    return answer


@pytest.mark.parametrize("name", ["Linking", "FileSystemBased", "FileContextBased"])
def test_second_writer_of_a_file_does_not_replace_the_first(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    """Of the job's file manager for local disks, and of Spark's own two."""
    context: Any = spark.sparkContext
    package = context._jvm.org.apache.spark.sql.execution.streaming.checkpointing
    if name == "Linking":
        package = context._jvm.holdfast.checkpoint
        if not manager_jar().exists():
            pytest.skip("this installation has no jar of the checkpoint file managers")
    place = context._jvm.org.apache.hadoop.fs.Path(str(tmp_path / "5"))
    configuration = context._jsc.hadoopConfiguration()
    manager = getattr(package, f"{name}CheckpointFileManager")(place, configuration)
    first, second = (manager.createAtomic(place, False) for _ in range(2))
    first.write(bytearray(b"first"))
    second.write(bytearray(b"second"))
    assert not (tmp_path / "5").exists()
    first.close()
    with pytest.raises(Py4JJavaError, match="AlreadyExists"):
        second.close()
    assert (tmp_path / "5").read_bytes() == b"first"
    stream = manager.open(place)
    assert context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8") == "first"
    stream.close()
    assert (tmp_path / ".5.crc").exists()
    if name == "Linking":
        assert sorted(each.name for each in tmp_path.iterdir()) == [".5.crc", "5"]
