"""Savepoints on real Spark: crashes while a checkpoint is made from one, and everything refused."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.lifecycle.failure import QueryFailed
from holdfast.spark_app.savepoint import manifest, tables, write
from holdfast.spark_app.savepoint.folder import PART, SavepointFolder
from holdfast.spark_app.savepoint.schedule import Savepoints, Schedule
from holdfast.spark_app.savepoint.shelf import Shelf
from tests.support.job.damage import flip
from tests.support.job.job_stream import Rows, lasting
from tests.support.job.jobs import POLICY, Play, armed, commits, event, patiently
from tests.support.servers.databases import copy_of
from tests.support.servers.places import place as place_of
from tests.support.waiting import eventually
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rest

FILES = [
    [event("e1", "12:01", 5_900_000), event("e2", "12:02", 1, "m_2")],
    [event("e3", "12:16:30", 5_500_000), event("e4", "12:16:30", 100, "m_2")],
    # Emits 12:00-12:15 and blocks m_1.
    [event("e5", "12:16:40", 7, "m_2"), event("e4", "12:16:30", 100, "m_2")],
    # Corrects the emitted window, and repeats an id of it.
    [event("e6", "12:14", 100_000), event("e1", "12:01", 5_900_000)],
    [event("e7", "12:31", 1, "m_2")],
]
SAVED = 2
"""The newest batch that every savepoint here is of: two files follow it."""


@pytest.fixture(scope="module")
def finished(shared_play: Play) -> Play:
    """A stream that has read all files, and a savepoint of an earlier batch of it."""
    shared_play.put(*FILES)
    shared_play.command()
    shared_play.save(str(shared_play.checkpoint), str(shared_play.folder / "saved"), SAVED)
    return shared_play


@pytest.fixture
def dsn(finished: Play, make_database: Callable[[str | None], str]) -> str:
    """Its database, for one test."""
    return make_database(conninfo_to_dict(finished.dsn)["dbname"])


@pytest.fixture
def play(finished: Play, dsn: str) -> Play:
    """The stream, for one test; its checkpoint and its savepoint are only read."""
    return Play(finished.spark, dsn, finished.folder)


def _saved(play: Play) -> str:
    return str(play.folder / "saved")


def _content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _written(play: Play) -> dict[str, Rows]:
    """What receivers and readers see."""
    return lasting(play.dsn, "entries", "windows")


def _queries(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute("""
        SELECT query_id, count(*) FROM holdfast.batch GROUP BY 1 ORDER BY min(batch_no)
    """).fetchall()


def test_a_crash_at_any_point_is_repaired_by_the_same_command(
    world: World, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    before, checkpoint = _written(play), world.tmp_path / "new"
    assert [window[2:4] for window in before["windows"] if window[2] > 1] == [(2, 6_000_000)]
    wanted = {"checkpoint": str(checkpoint), "savepoint": _saved(play), "key_groups": 7}
    ids = set()
    for point in ("P1", "P2", "P3", "P4", "P5", "P6"):
        with armed(f"{point}=raise"), pytest.raises(QueryFailed, match=point):
            play.command(**wanted)
        ids.add(json.loads((checkpoint / "holdfast-savepoint.json").read_text())["query_id"])
        assert len(_queries(world.db)) == (2 if point == "P6" else 1)
        if point in {"P1", "P4"}:
            with pytest.raises(CommandError, match="--from-savepoint"):
                play.command(checkpoint=str(checkpoint), key_groups=7)
    assert len(ids) == 1
    errors = capsys.readouterr().err
    rows = json.loads((play.folder / "saved" / "manifest.json").read_text())["rows"]
    assert (
        f"holdfast: began {checkpoint} with the state after batch {SAVED} of payouts, from the"
        f" savepoint {_saved(play)}: {rows['windows']} windows, {rows['merchants']} merchants,"
        f" {rows['ids']} ids; 7 key groups\n"
    ) in errors

    play.command(**wanted)
    assert "began" not in capsys.readouterr().err
    assert _written(play) == before
    # Batch 0 is the savepoint; then the files that followed it, and the batch without data.
    assert _queries(world.db)[1][1] == 1 + len(FILES) - SAVED
    play.command(**wanted | {"key_groups": None})
    assert _queries(world.db)[1][1] == 1 + len(FILES) - SAVED

    # A restart does not need the savepoint any more; another one is refused.
    copy = world.tmp_path / "copy"
    shutil.copytree(_saved(play), copy)
    again = play.save(str(checkpoint), str(world.tmp_path / "again"))
    assert again.begun["key_groups"] == 7
    with pytest.raises(CommandError, match="made from another savepoint"):
        play.command(**wanted | {"savepoint": str(world.tmp_path / "again")})
    play.command(**wanted | {"savepoint": str(copy)})
    with pytest.raises(CommandError, match="made from another savepoint"):
        play.command(**wanted | {"savepoint": str(world.tmp_path / "gone")})

    # Where none are asked for, a new checkpoint has the key groups of its savepoint.
    third = world.tmp_path / "third"
    play.command(checkpoint=str(third), savepoint=str(world.tmp_path / "again"), key_groups=None)
    assert json.loads((third / "holdfast.json").read_text())["key_groups"] == 7
    assert _written(play) == before


def test_start_keeps_a_checkpoint_made_concurrently(
    world: World, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both start with the same command; the slower one has checked that nothing is there."""
    from holdfast.spark_app.savepoint import begin

    checkpoint = world.tmp_path / "new"
    wanted = {"checkpoint": str(checkpoint), "savepoint": _saved(play), "key_groups": 4}
    require, made = begin._require, {}

    def overtaken(*arguments: Any) -> Any:
        shape = require(*arguments)
        monkeypatch.setattr(begin, "_require", require)
        play.command(**wanted)
        made.update(_content(checkpoint))
        return shape

    monkeypatch.setattr(begin, "_require", overtaken)
    play.command(**wanted)
    assert made
    assert {name: _content(checkpoint).get(name) for name in made} == made
    assert len(_queries(world.db)) == 2


def test_a_policy_is_compared_again_before_the_stream_adopts(
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    """The old job may have gone on in between, for long where the database was away."""
    play = Play(spark, make_database(template_database), tmp_path)
    play.put([event("e1", "12:01", 6_000_000)])
    play.command()
    play.save(str(tmp_path / "checkpoint"), _saved(play))
    limits = "limit_minor = 9_000_000\nrelease_level_minor = 9_000_000\n"
    later = POLICY.replace("2026-11-01", "v2")
    later += f"[[default]]\n{limits}effective_from = 2024-11-04T12:10:00Z\n"
    wanted = {
        "checkpoint": str(tmp_path / "new"),
        "savepoint": _saved(play),
        "policy": Policy.parse(later),
    }
    with armed("P5=raise"), pytest.raises(QueryFailed, match="P5"):
        play.command(**wanted)
    play.put([event("e2", "12:20", 1)], first=1)
    play.command()
    with pytest.raises(CommandError, match=r"up to 2024-11-04T12:15:00Z are decided"):
        play.command(**wanted)
    shutil.rmtree(_saved(play))
    with pytest.raises(CommandError, match="is not a savepoint"):
        play.command(**wanted)
    play.put([event("e3", "12:40", 1)], first=2)
    play.command()


def _flip(file: Path) -> None:
    flip(file)
    # A copy without its hidden files.
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def _flip_ids(folder: Path) -> None:
    _flip(next((folder / "ids").glob("part-*")))


def _flip_sources(folder: Path) -> None:
    _flip(folder / "sources" / "0.jsonl")


def _lose_windows(folder: Path) -> None:
    next((folder / "windows").glob("part-*")).unlink()


def _cut(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / ".manifest.json.crc").unlink(missing_ok=True)
    (folder / "manifest.json").write_text(text[: len(text) // 2])


def _of_the_future(folder: Path) -> None:
    (folder / ".manifest.json.crc").unlink(missing_ok=True)
    (folder / "manifest.json").write_text('{"version": 3, "holdfast": "9.0"}')


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_flip_ids, r"ids/part-.* \(checksum\)"),
        (_flip_sources, r"sources/0\.jsonl .*\(checksum\)"),
        (_lose_windows, "windows/part-.* is missing"),
        (_cut, r"manifest\.json .* cannot be read"),
        (_of_the_future, "version 3, and this Holdfast reads up to 2"),
    ],
)
def test_a_damaged_savepoint_is_refused(
    world: World, damage: Callable[[Path], None], named: str, play: Play
) -> None:
    shutil.copytree(_saved(play), world.tmp_path / "saved")
    damage(world.tmp_path / "saved")
    with pytest.raises(CommandError, match=f"{named}.* Nothing was changed"):
        play.command(
            checkpoint=str(world.tmp_path / "new"), savepoint=str(world.tmp_path / "saved")
        )
    assert not (world.tmp_path / "new").exists()
    assert len(_queries(world.db)) == 1


def test_a_job_or_a_database_that_does_not_fit_is_refused(
    world: World, play: Play, server_dsn: str, template_database: str
) -> None:
    (world.tmp_path / "events").mkdir()
    wanted = {"checkpoint": str(world.tmp_path / "new"), "savepoint": _saved(play)}
    for change, named in (
        ({"stream": "others"}, "--stream was payouts, is others"),
        ({"settings": Settings(late_cutoff_us=60_000_000)}, "--late-cutoff was 120s, is 60s"),
        ({"paths": (str(world.tmp_path / "events"),)}, "--path .*events is missing"),
        ({"savepoint": str(world.tmp_path / "events")}, "is not a savepoint"),
    ):
        with pytest.raises(CommandError, match=f"{named}.* Nothing was changed"):
            play.command(**wanted | change)
    with copy_of(server_dsn, template_database) as other:
        elsewhere = Play(play.spark, other, play.folder)
        with pytest.raises(CommandError, match=r"does not have that batch.* Nothing was changed"):
            elsewhere.command(**wanted)
        with pytest.raises(CommandError, match=r"the ledger has no batch .* Nothing was written"):
            elsewhere.save(str(play.checkpoint), str(world.tmp_path / "unproved"))
    for place, named in (("checkpoint", "holds something else already"), ("saved/new", "lies in")):
        with pytest.raises(CommandError, match=named):
            play.command(**wanted | {"checkpoint": str(play.folder / place)})
    assert not (play.folder / "saved" / "new").exists()
    world.db.execute("UPDATE holdfast.stream SET query_id = gen_random_uuid(), adopted_at = now()")
    with pytest.raises(CommandError, match=r"has adopted another one since. Nothing was changed"):
        play.command(**wanted)
    assert sorted(path.name for path in world.tmp_path.iterdir()) == ["events"]


def test_a_savepoint_of_an_older_version_is_refused_for_another_directory(
    play: Play, tmp_path: Path
) -> None:
    """It has no sources; but its job has read files."""
    saved = tmp_path / "saved"
    shutil.copytree(_saved(play), saved)
    content = json.loads((saved / manifest.FILE).read_text())
    del content["checksum"], content["begun"]["sources"]
    content["begun"] |= {"version": 2, "format": "json"}
    content["checksum"] = manifest.checksum(content)
    (saved / f".{manifest.FILE}.crc").unlink(missing_ok=True)
    (saved / manifest.FILE).write_text(json.dumps(content))
    (tmp_path / "events").mkdir()
    wanted = {"checkpoint": str(tmp_path / "new"), "savepoint": str(saved)}
    with pytest.raises(CommandError, match=r"000\.json, which is not in --path .*/events/"):
        play.command(**wanted, paths=(str(tmp_path / "events"),))
    assert not (tmp_path / "new").exists()
    play.command(**wanted)
    assert (tmp_path / "new" / "commits" / "1").exists()


def test_what_cannot_be_saved_leaves_nothing(play: Play, tmp_path: Path) -> None:
    checkpoint = play.checkpoint
    before = _content(checkpoint)
    with pytest.raises(CommandError, match=r"batch 99 is not committed yet: .* 0 to 5") as raised:
        play.save(str(checkpoint), str(tmp_path / "no"), 99)
    assert raised.value.exit_code == ExitCode.NOTHING_MATCHED
    (tmp_path / "taken").mkdir()
    with pytest.raises(CommandError, match=r"exists already. Nothing was written"):
        play.save(str(checkpoint), str(tmp_path / "taken"))
    assert {path.name for path in tmp_path.iterdir()} == {"taken"}
    for place in (checkpoint, play.folder / "events"):
        with pytest.raises(CommandError, match=f"lies in {place}, .* Nothing was written"):
            play.save(str(checkpoint), str(place / "day" / "saved"))
        assert not (place / "day").exists()
    assert _content(checkpoint) == before


def test_concurrent_savepoints_do_not_mix_their_files(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first one publishes a manifest of files that the second one has removed."""
    count, to = write._counts, str(tmp_path / "saved")

    def while_another_begins(spark: "SparkSession", part: SavepointFolder) -> dict[str, int]:
        SavepointFolder(spark, to).prepare()
        return count(spark, part)

    def after_which_another_begins(spark: "SparkSession", part: SavepointFolder) -> dict[str, int]:
        result = count(spark, part)
        SavepointFolder(spark, to).prepare()
        return result

    for patched in (while_another_begins, after_which_another_begins):
        monkeypatch.setattr(write, "_counts", patched)
        saved = play.save(str(play.checkpoint), to, SAVED)
        assert {file.name.partition("/")[0] for file in saved.files} == {*saved.rows, "sources"}
        shutil.rmtree(to)


def _at(*in_ci: str) -> pytest.MarkDecorator:
    """Take a test to every place of savepoints: CI to these, `make test-long` to the others."""
    places = ("disk", "inside", "hdfs", "s3", "gcs")
    each = [
        pytest.param(place, marks=[pytest.mark.long] * (place not in in_ci)) for place in places
    ]
    return pytest.mark.parametrize("elsewhere", each, indirect=True)


@pytest.fixture
def elsewhere(
    request: pytest.FixtureRequest,
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    """A place for savepoints; `inside` is a local disk that is written as an object store is."""
    if request.param == "inside":
        monkeypatch.setattr(SavepointFolder, "is_object_store", True)
    with place_of(request.param, tmp_path, spark) as uri:
        yield uri


def _files(spark: "SparkSession", uri: str) -> dict[str, Any]:
    """The savepoint's files, each with its checksum, and all names at its place."""
    folder = SavepointFolder(spark, uri)
    found = folder.manifest()
    folder.verify(found.files)
    names = {name for name in CheckpointFiles(spark, uri).names(".") if not name.startswith(".")}
    return {"id": found.savepoint_id, "names": names, "files": found.files}


@_at("disk", "inside")
def test_slower_savepoint_never_replaces_the_one_that_took_its_place(
    play: Play, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one is paused before the step that gives it its place."""
    to, publish, newer = f"{elsewhere}/saved", SavepointFolder.publish, []

    def overtaken(folder: SavepointFolder, part: SavepointFolder, found: Any) -> Any:
        monkeypatch.setattr(SavepointFolder, "publish", publish)
        newer.append(play.save(str(play.checkpoint), to, SAVED + 1))
        return publish(folder, part, found)

    monkeypatch.setattr(SavepointFolder, "publish", overtaken)
    with pytest.raises(CommandError, match=f"{to} exists already. Nothing was written"):
        play.save(str(play.checkpoint), to, SAVED)
    found = _files(play.spark, to)
    assert found["id"] == newer[0].savepoint_id
    folders = {file.name.partition("/")[0] for file in newer[0].files}
    inside = newer[0].folder.rstrip("/")
    assert found["names"] == {manifest.FILE, *([inside] if inside else folders)}
    assert [
        each for each in CheckpointFiles(play.spark, elsewhere).names(".") if PART in each
    ] == []


@_at("disk")
def test_savepoint_is_taken_to_another_place_and_back(
    world: World, play: Play, elsewhere: str, tmp_path: Path
) -> None:
    before = _written(play)
    play.save(str(play.checkpoint), f"{elsewhere}/saved", SAVED)
    new = tmp_path / "new"
    play.command(checkpoint=str(new), savepoint=f"{elsewhere}/saved", key_groups=7)
    assert _written(play) == before
    states = [
        _state(play, source, f"{elsewhere}/{name}")
        for source, name in ((play.checkpoint, "of-old"), (new, "of-new"))
    ]
    assert states[0] == states[1]
    assert all(states[0].values())
    assert _queries(world.db)[1][1] == 1 + len(FILES) - SAVED


def _state(play: Play, checkpoint: Path, to: str) -> dict[str, list[Any]]:
    """The state after the newest batch as it is in a savepoint, whatever its key groups."""
    folder = SavepointFolder(play.spark, to)
    play.save(str(checkpoint), to)
    found = folder.manifest()
    return {
        name: sorted(
            tuple(row)
            for row in play.spark.read.schema(tables.DDL[name])
            .parquet(*folder.paths(found.files, name))
            .drop("position")
            .collect()
        )
        for name in tables.SCHEMAS
    }


@dataclass
class Observed:
    """What a running job tells of its savepoints."""

    times: list[float] = field(default_factory=list)
    failures: int = 0

    def saved(self, at: float) -> None:
        self.times.append(at)

    def not_saved(self) -> None:
        self.failures += 1


@contextmanager
def _running(play: Play, place: str, keep: int = 2) -> Iterator[Observed]:
    """The job, running, with a savepoint each second; it ends with the block."""
    seen, stop = Observed(), Event()
    savepoints = Savepoints(Schedule(1000, place, keep), play.job(), play.dsn, seen)
    with (
        savepoints.written(play.spark) as tick,
        ThreadPoolExecutor(1) as pool,
        play.attempt(stop, 50) as run,
    ):
        running = pool.submit(patiently, partial(run, tick=tick))
        try:
            yield seen
        finally:
            stop.set()
            running.result(240)


@_at("inside")
def test_running_job_saves_on_schedule_and_does_not_wait_for_it(
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play, place = Play(spark, make_database(template_database), tmp_path), f"{elsewhere}/saved"
    publish, paused, go_on = SavepointFolder.publish, Event(), Event()

    def slow(folder: SavepointFolder, part: SavepointFolder, found: Any) -> Any:
        paused.set()
        assert go_on.wait(240)
        return publish(folder, part, found)

    def committed() -> int:
        return len(commits(play.checkpoint))

    play.put(FILES[0])
    with _running(play, place) as seen:
        eventually(lambda: seen.times, 240)
        monkeypatch.setattr(SavepointFolder, "publish", slow)
        play.put(FILES[1], first=1)
        eventually(paused.is_set, 240)
        before = committed()
        play.put(*FILES[2:], first=2)
        eventually(lambda: committed() >= before + 3, 240)
        go_on.set()
        eventually(lambda: len(seen.times) >= 3, 240)
    assert not seen.failures, capsys.readouterr().err
    shelf = Shelf(spark, place)
    kept = list(shelf.kept("payouts"))
    assert 1 <= len(kept) <= 2
    assert [shelf.problem(each) for each in kept] == [None] * len(kept)
    assert list(shelf.kept("others")) == []

    # What killed processes have left. Then the newest is damaged: the intact one before it stays.
    left = {"20200101T000000Z.0badcafe.part", "20200102T000000Z"}
    for name in left:
        CheckpointFiles(spark, shelf.where(name)).make_folder("windows")
    play.put([event("e8", "13:31", 1)], first=len(FILES))
    with _running(play, place) as seen:
        eventually(lambda: len(seen.times) >= 2, 240)
    kept = list(shelf.kept())
    assert len(kept) == 2
    assert left.isdisjoint(CheckpointFiles(spark, place).names("."))
    newest = SavepointFolder(spark, shelf.where(kept[0].name), kept[0].manifest.folder)
    newest.remove(next(file.name for file in kept[0].manifest.files))
    assert "is missing" in (shelf.problem(kept[0]) or "")
    assert shelf.prune("payouts", 1) == []
    assert shelf.prune("others", 1) == []
    newest.remove_published()
    assert [each.name for each in shelf.kept()] == [kept[1].name]

    # What it wrote is a savepoint like any other.
    play.command()
    finished = _written(play)
    where = {"checkpoint": str(tmp_path / "new"), "savepoint": shelf.where(kept[1].name)}
    play.command(**where, key_groups=7)
    assert _written(play) == finished


def test_savepoint_that_fails_is_a_warning_and_the_job_continues(
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play = Play(spark, make_database(template_database), tmp_path)
    (tmp_path / "file").touch()
    play.put(*FILES[:3])
    with _running(play, str(tmp_path / "file" / "saved")) as seen:
        eventually(lambda: seen.failures >= 2, 240)
        play.put(*FILES[3:], first=3)
        eventually(lambda: len(commits(play.checkpoint)) >= len(FILES), 240)
    assert "warning: no savepoint was written to" in capsys.readouterr().err
    assert seen.times == []


def test_next_command_removes_leftovers_of_a_killed_one_only(
    spark: "SparkSession", tmp_path: Path
) -> None:
    saved = SavepointFolder(spark, str(tmp_path / "saved"))
    running = Path(saved.prepare().checkpoint)
    young, killed, other = (tmp_path / f"{name}.part" for name in NAMES)
    for folder in (young, killed, other):
        (folder / "windows").mkdir(parents=True)
    for folder in (running, killed, other):
        os.utime(folder, (0, 0))
    mine = Path(saved.prepare().checkpoint)
    assert {*tmp_path.iterdir()} == {running, young, other, mine}


NAMES = ("saved.0badcafe", "saved.00000001", "saved-2.00000001")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 16 KiB. Not in pytest's own folder, which other runs clean."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-small-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    try:
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("only root can mount a small disk, and not in every container")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - of the machine
    finally:
        folder.rmdir()


def test_a_full_disk_half_way_leaves_nothing(play: Play, small_disk: Path) -> None:
    with pytest.raises(CommandError, match=r"No space left on device.* only read"):
        play.save(str(play.checkpoint), str(small_disk / "saved"))
    assert list(small_disk.iterdir()) == []
