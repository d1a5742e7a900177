"""`job checkpoints` on a real checkpoint: damage of every kind of file, going back, pruning.

The checkpoint is made once. Reading needs no Spark, so a copy is damaged for each case; where Spark
starts again, the checkpoint is damaged at its own path, and put back.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from holdfast.sink import CheckpointBehind, ReplayDiverged
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.source_offsets import without_files
from holdfast.spark_app.checkpoint_manager.cli import app as commands
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.kept import Kept
from holdfast.spark_app.checkpoint_manager.listing import listed, shown
from holdfast.spark_app.checkpoint_manager.prune import pruned
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.checkpoint_manager.trees import RemoteTree
from holdfast.spark_app.checkpoint_manager.verify import verified
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.command import holdfast
from tests.support.job.damage import (
    BACK,
    DAMAGE,
    STAYS,
    cut,
    emptied,
    flip,
    newest_in,
    newest_of,
    sums_of,
)
from tests.support.job.job_process import QUICK, job_process
from tests.support.job.job_stream import lasting, ledger
from tests.support.job.jobs import Play, busy, put
from tests.support.servers.databases import copy_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]

FILES = 14
LATER = 3
"""Files that come after the checkpoint was made."""

KEEP = 9
SNAPSHOTS = "-Dspark.sql.streaming.stateStore"
JAVA = (
    # A snapshot every third batch, at once.
    f"{SNAPSHOTS}.minDeltasForSnapshot=3 {SNAPSHOTS}.maintenanceInterval=50ms"
)


def _put(events: Path, numbers: range) -> None:
    for number in numbers:
        put(events, number, busy(number, number * 7))


@dataclass(frozen=True)
class World:
    """A stopped job with its checkpoint and its database, and a copy of the checkpoint."""

    folder: Path
    database: str
    copy: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def newest(self) -> int:
        return max(int(each.name) for each in (self.copy / "commits").glob("[0-9]*"))

    def put_back(self) -> None:
        from pyspark.sql import SparkSession

        session: Any = SparkSession.getActiveSession()
        if session is not None:
            # Its maintenance of the state would write into the folder meanwhile.
            session._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.copy, self.checkpoint)


@pytest.fixture(scope="module")
def world(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A job that has run over the first files in a process of its own."""
    folder = tmp_path_factory.mktemp("manager")
    _put(folder / "events", range(FILES))
    java = f"{os.environ['HOLDFAST_SPARK_JAVA_OPTIONS']} {JAVA}"
    with copy_of(server_dsn, template_database) as dsn:
        options = (*QUICK, "--available-now", "--keep-batches", str(KEEP))
        environment = {"HOLDFAST_SPARK_JAVA_OPTIONS": java}
        with job_process(folder, dsn, *options, environment=environment) as job:
            assert job.wait() == ExitCode.OK, job.said
        shutil.copytree(folder / "checkpoint", folder / "copy")
        yield World(folder, str(conninfo_to_dict(dsn)["dbname"]), folder / "copy")


@pytest.fixture
def database(world: World, make_database: Callable[[str | None], str]) -> str:
    """The DSN of a copy of the job's database."""
    return make_database(world.database)


@pytest.fixture
def in_place(world: World) -> Iterator[World]:
    """The checkpoint at its own path, put back after the test."""
    yield world
    world.put_back()


@pytest.fixture
def copied(world: World, tmp_path: Path) -> Path:
    """A copy of the checkpoint elsewhere, which may be damaged and read."""
    return Path(shutil.copytree(world.copy, tmp_path / "checkpoint"))


def _with_both(name: str) -> set[str]:
    """A file, or the one whose checksum it is."""
    return {name, name.removesuffix(".crc"), name.removesuffix(".crc").replace("/.", "/")}


@pytest.mark.parametrize("name", ["commits/{}", "offsets/{}", "state/0/_metadata/v2/0"])
def test_file_removed_by_a_running_job_ends_no_command(
    world: World, copied: Path, name: str
) -> None:
    name = name.format(world.newest)
    folder = Folder(str(copied))
    assert folder.problem(name) is None
    (copied / name).unlink()
    assert verified(folder)[0]["last_batch_id"] == world.newest
    assert listed(folder, None)["batches"]


def test_intact_checkpoint_can_restore_all_but_the_oldest_batch(world: World) -> None:
    answer, code = verified(Folder(str(world.checkpoint)))
    assert (answer["result"], code, answer["damaged"]) == ("intact", ExitCode.OK, [])
    usable = {each["batch_id"]: each["restorable"] for each in answer["batches"]}
    # Spark reads the plan before a batch as well, and has removed that of the oldest.
    assert [batch for batch, restorable in usable.items() if not restorable] in ([], [min(usable)])
    assert len(usable) >= KEEP


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named_with_what_it_means_and_the_way_out(case: str, copied: Path) -> None:
    find, damage, code, way_out = DAMAGE[case]
    name = find(copied)
    damage(copied / name)
    answer, finding = verified(Folder(str(copied)))
    named = {each["file"]: each for each in answer["damaged"]}
    assert _with_both(name) & named.keys(), answer
    assert finding == code, answer
    assert any(each["needed_to_start"] for each in named.values()) == (code == STAYS)
    assert way_out in " ".join(answer["advice"])
    if way_out == BACK:
        batch = int(answer["advice"][-1].rpartition(" ")[2])
        usable = [each["batch_id"] for each in answer["batches"] if each["restorable"]]
        assert batch == max(usable)


def test_commit_that_was_never_written_is_a_batch_to_replay(copied: Path) -> None:
    (copied / newest_in("commits")(copied)).unlink()
    answer, code = verified(Folder(str(copied)))
    assert code == ExitCode.OK
    assert answer["last_planned_batch_id"] == answer["last_batch_id"] + 1


def test_list_and_show_have_sizes_phases_and_files(world: World, database: str) -> None:
    folder = Folder(str(world.checkpoint))
    answer = listed(folder, database)
    batches = answer["batches"]
    assert batches[0]["batch_id"] == answer["last_batch_id"] == world.newest
    assert answer["retention"]["keep_batches"] == KEEP
    assert answer["retention"]["spark"]["spark.sql.streaming.minBatchesToRetain"] == str(KEEP)
    assert any(each["snapshot_bytes"] for each in batches)
    for each in batches:
        assert each["changelog_bytes"] > 0
        # The ledger's clock is the same machine's.
        phases = each["phases_ms"]
        assert phases["plan_to_commit"] == pytest.approx(
            phases["plan_to_state"] + phases["state_to_outbox"] + phases["outbox_to_commit"], abs=2
        )
    details = shown(folder, world.newest - 1, database)
    assert details["restorable"]
    assert details["changes"].keys() <= {"group", "windows", "ids", "timers"}
    assert details["settings"]["stream"] == "payouts"
    assert all(each["problem"] is None and each["bytes"] for each in details["files"])
    assert {each["partition"] for each in details["state"]} == {0, 1}
    with pytest.raises(CommandError, match="not kept any more") as raised:
        shown(folder, 0, None)
    assert raised.value.exit_code == ExitCode.NOTHING_MATCHED


def _said(*words: str) -> str:
    """Return what a command prints, in this process."""
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == ExitCode.OK, done.output
    return str(done.stdout)


def test_commands_print_text_and_json(world: World) -> None:
    where = ("--checkpoint", str(world.checkpoint))
    text = _said("list", *where)
    assert str(world.newest) in text.splitlines()[3].split()
    assert "can be restored" in _said("show", "--batch", str(world.newest), *where)
    assert "intact batches" in _said("verify", *where)
    assert json.loads(_said("verify", "--json", *where))["stream"] == "payouts"
    with pytest.raises(CommandError, match="is not a checkpoint") as raised:
        Folder(str(world.folder))
    assert raised.value.exit_code == ExitCode.USAGE
    assert json.loads(_said("list", "--json", "--checkpoint", f"file://{world.checkpoint}"))


def test_prune_keeps_the_checkpoint_intact_for_the_newest_batches(copied: Path) -> None:
    before, newest = Folder(str(copied)), Kept(Folder(str(copied))).newest
    assert newest is not None
    planned = pruned(before, 3, 0, dry_run=True)
    assert Folder(str(copied)).files == before.files
    done = pruned(before, 3, 0, dry_run=False)
    assert done["removed_files"] == planned["removed_files"]
    assert done["removed_files"]
    assert done["kept_batch_ids"] == [newest - 2, newest - 1, newest]
    after = Folder(str(copied))
    assert before.files.keys() - after.files.keys() == set(done["removed_files"])
    answer, code = verified(after)
    assert code == ExitCode.OK, answer
    assert [each["restorable"] for each in answer["batches"]] == [True] * 3
    again = pruned(after, 3, 0, dry_run=False)
    assert (again["removed_files"], again["removed_batch_ids"]) == ([], [])
    assert pruned(after, 1, 3_600_000, dry_run=True)["kept_batch_ids"] == done["kept_batch_ids"]


def test_prune_spares_what_a_batch_in_flight_writes(copied: Path) -> None:
    """A job goes on with the state that it has in memory, and no later start could read it."""
    newest = Kept(Folder(str(copied))).newest
    assert newest is not None
    at = next(copied.glob("state/0/0"))
    written = [at / f"{newest + 2}_{uuid4()}.changelog", at / "SSTs" / f"000999-{uuid4()}.sst"]
    stale = at / f"{newest + 1}_{uuid4()}.changelog"
    for file in (*written, stale):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
    done = pruned(Folder(str(copied)), 2, 0, dry_run=False)
    assert not stale.exists()
    assert [file.exists() for file in written] == [True, True], done
    for file in written:
        os.utime(file, (0, 0))
    pruned(Folder(str(copied)), 2, 0, dry_run=False)
    assert [file.exists() for file in written] == [False, False]


def test_prune_is_refused_while_the_job_is_connected(copied: Path, dsn: str) -> None:
    words = ("job", "checkpoints", "prune", "--checkpoint", str(copied), "--keep-last", "2")
    before = Folder(str(copied)).files
    assert holdfast(*words, process=False).returncode == ExitCode.USAGE
    with psycopg.connect(dsn, application_name="holdfast sink payouts"):
        done = holdfast(*words, dsn=dsn, process=False)
    assert done.returncode == ExitCode.FAILED
    assert "is connected" in done.stderr
    assert Folder(str(copied)).files == before


def test_killed_prune_leaves_a_checkpoint_that_starts(copied: Path, dsn: str) -> None:
    words = ("job", "checkpoints", "prune", "--checkpoint", str(copied), "--keep-last", "2")
    done = holdfast(*words, dsn=dsn, environment={"HOLDFAST_FAILPOINTS": "O7=kill@9"})
    assert done.returncode < 0
    _, code = verified(Folder(str(copied)))
    assert code in (ExitCode.OK, ExitCode.DEGRADED)
    assert holdfast(*words, dsn=dsn, process=False).returncode == ExitCode.OK
    assert verified(Folder(str(copied)))[1] == ExitCode.OK


def test_prune_refuses_a_damaged_checkpoint(copied: Path) -> None:
    flip(copied / newest_of(copied, ".changelog"))
    before = Folder(str(copied)).files
    with pytest.raises(CommandError, match=r"is not intact.*Nothing was removed"):
        pruned(Folder(str(copied)), 3, 0, dry_run=False)
    assert Folder(str(copied)).files == before


def test_refused_restore_changes_nothing(in_place: World, database: str, tmp_path: Path) -> None:
    where, newest = str(in_place.checkpoint), in_place.newest
    batches, files = ledger(database), Folder(where).files

    def complaint(batch: int, checkpoint: str = where, dsn: str = database) -> str:
        with pytest.raises(CommandError) as raised:
            restored(Folder(checkpoint), batch, dsn, dry_run=False)
        return str(raised.value)

    assert f"batch {newest} is the newest one" in complaint(newest)
    assert "not committed yet" in complaint(newest + 1)
    moved = shutil.copytree(in_place.checkpoint, tmp_path / "moved")
    assert "was begun in another place" in complaint(newest - 2, str(moved))
    with psycopg.connect(database, application_name="holdfast sink payouts"):
        assert "stop the job" in complaint(newest - 2)
    with psycopg.connect(database) as db:
        db.execute("DELETE FROM holdfast.batch WHERE batch_id >= %s", [newest - 2])
    assert f"does not have batch {newest - 2}" in complaint(newest - 2)
    batches = [row for row in batches if row[1] < newest - 2]
    events = next(iter(sorted((in_place.folder / "events").iterdir(), reverse=True)))
    events.rename(in_place.folder / "gone.json")
    assert f"{events} is gone" in complaint(newest - 3)
    (in_place.folder / "gone.json").rename(events)
    assert Folder(where).files == files
    name = Kept(Folder(where)).chains(newest - 3)[0, 0].files[-1]
    flip(in_place.checkpoint / name)
    assert name in complaint(newest - 3)
    assert ledger(database) == batches


@pytest.mark.parametrize("point", ["O4", "O5@3", "O6"])
def test_restore_that_died_is_finished_by_the_same_command(
    in_place: World, database: str, point: str
) -> None:
    batch = in_place.newest - 4
    words = ("job", "checkpoints", "restore", "--checkpoint", str(in_place.checkpoint), "--batch")
    name, at, turn = point.partition("@")
    environment = {"HOLDFAST_FAILPOINTS": f"{name}=kill{at}{turn}"}
    done = holdfast(*words, str(batch), dsn=database, environment=environment)
    assert done.returncode < 0
    answer, code = verified(Folder(str(in_place.checkpoint)))
    assert (code, answer["unfinished_restore_batch_id"]) == (ExitCode.FAILED, batch)
    other = holdfast(*words, str(batch - 1), dsn=database, process=False)
    assert (other.returncode, "was interrupted" in other.stderr) == (ExitCode.FAILED, True)
    done = holdfast(*words, str(batch), "--json", dsn=database, process=False)
    assert done.returncode == ExitCode.OK, done.stderr
    data = json.loads(done.stdout)
    assert data["repeated"]["first_batch_id"] == batch + 1
    assert (
        data["repeated"]["last_batch_id"]
        == data["repeated"]["last_exact_batch_id"]
        == in_place.newest
    )
    answer, code = verified(Folder(str(in_place.checkpoint)))
    assert code == ExitCode.OK, answer
    assert (answer["last_batch_id"], answer["last_planned_batch_id"]) == (batch, batch)
    plans = sorted(int(each.parent.name) for each in in_place.checkpoint.glob("*repeat/*/plan"))
    assert plans == list(range(batch + 1, in_place.newest + 1))


def _left(dsn: str) -> dict[str, Any]:
    """The decisions with their keys, the windows, and the events that were not applied."""
    contents: dict[str, Any] = lasting(dsn, "entries", "windows", "keys", "late")
    return contents | {"late": {(reason, event_id) for reason, event_id, *_ in contents["late"]}}


@contextmanager
def _later(world: World) -> Iterator[None]:
    """Let there be the files that come later, for a start that has something to do."""
    numbers = range(FILES, FILES + LATER)
    _put(world.folder / "events", numbers)
    try:
        yield
    finally:
        for number in numbers:
            (world.folder / "events" / f"{number:03}.json").unlink()
        world.put_back()


@pytest.fixture(scope="module")
def undisturbed(spark: "SparkSession", world: World, server_dsn: str) -> dict[str, Any]:
    """What the same checkpoint leaves that goes on: compared is how its state came about."""
    with copy_of(server_dsn, world.database) as dsn, _later(world):
        Play(spark, dsn, world.folder).command()
        return _left(dsn)


@pytest.fixture
def later(world: World) -> Iterator[World]:
    """The checkpoint with the later files, put back after the test."""
    with _later(world):
        yield world


def test_two_restores_leave_the_results_of_an_undisturbed_run(
    spark: "SparkSession", later: World, database: str, undisturbed: dict[str, Any]
) -> None:
    play, where = Play(spark, database, later.folder), str(later.checkpoint)
    windows, before = len(_left(database)["windows"]), ledger(database)
    # Before the compact entry of the source's log, from which a lost one is made again.
    batch = min(Kept(Folder(where)).restorable()) + 1
    assert batch < 9
    (later.checkpoint / "sources/0" / str(batch)).unlink()
    restored_batches = restored(Folder(where), batch, database, dry_run=False)
    assert restored_batches["rebuilt_files"] == [f"sources/0/{batch}"]
    again = restored_batches["repeated"]
    assert (again["first_batch_id"], again["last_batch_id"]) == (batch + 1, later.newest)
    assert again["recorded"] == later.newest - batch
    assert listed(Folder(where), database)["repeats_until"] == later.newest
    flip(later.checkpoint / f"holdfast-repeat/{later.newest}/plan")
    assert verified(Folder(where))[1] == ExitCode.FAILED
    # Farther back before it has begun to repeat, and by Hadoop as on another file system.
    through_hadoop = Folder(RemoteTree(spark, f"file://{where}"))
    again = restored(through_hadoop, batch - 1, database, dry_run=False)["repeated"]
    assert again["recorded"] == again["last_batch_id"] - batch + 1
    play.command(max_files_per_trigger=None)
    assert ledger(database)[: len(before)] == before
    assert _left(database) == undisturbed
    assert len(undisturbed["windows"]) > windows
    answer, code = verified(Folder(where))
    assert code == ExitCode.OK, answer
    assert len(listed(Folder(where), database)["restores"]) == 2
    pruned(Folder(where), 2, 0, dry_run=False)
    assert verified(Folder(where))[1] == ExitCode.OK


def test_restore_leaves_out_a_damaged_newest_delta(
    spark: "SparkSession", later: World, database: str, undisturbed: dict[str, Any]
) -> None:
    play, where = Play(spark, database, later.folder), str(later.checkpoint)
    flip(later.checkpoint / newest_of(later.checkpoint, ".changelog"))
    before = _left(database)
    with pytest.raises(Exception, match="job checkpoints verify` names"):
        play.command()
    assert _left(database) == before
    answer, code = verified(Folder(where))
    assert code == ExitCode.FAILED
    words = answer["advice"][-1].partition("holdfast ")[2].split()
    done = holdfast(*words, dsn=database, process=False)
    assert done.returncode == ExitCode.OK, done.stderr
    play.command()
    assert _left(database) == undisturbed


def test_damaged_checksum_files_of_intact_files_are_written_again(
    spark: "SparkSession", later: World, database: str, undisturbed: dict[str, Any]
) -> None:
    where, delta = str(later.checkpoint), newest_of(later.checkpoint, ".changelog")
    snapshot = newest_of(later.checkpoint, ".zip")
    emptied(later.checkpoint / sums_of(newest_in("sources/0")(later.checkpoint)))
    cut(later.checkpoint / sums_of(newest_in("offsets")(later.checkpoint)))
    cut(later.checkpoint / sums_of(delta))
    flip(later.checkpoint / f"{snapshot}.crc")
    answer, code = verified(Folder(where))
    assert (code, len(answer["damaged"])) == (ExitCode.DEGRADED, 4), answer
    Play(spark, database, later.folder).command()
    assert _left(database) == undisturbed
    answer, code = verified(Folder(where))
    assert code == ExitCode.OK, answer


@pytest.mark.parametrize("log", ["offsets", pytest.param("sources/0", marks=pytest.mark.long)])
def test_batch_with_lost_plan_or_files_is_repeated_from_the_ledger(
    spark: "SparkSession", later: World, database: str, undisturbed: dict[str, Any], log: str
) -> None:
    """New files are there already: they are not taken for those of before."""
    where = str(later.checkpoint)
    if log == "offsets":
        (later.checkpoint / newest_in(log)(later.checkpoint)).unlink()
    else:
        flip(next(later.checkpoint.glob("sources/0/*.compact")))
    batch = Kept(Folder(where)).restorable()[-1]
    before = ledger(database)
    # Planned, and never done: as far as the ledger knows, there was no such batch.
    never = later.checkpoint / f"offsets/{later.newest + 1}"
    never.write_text((later.checkpoint / f"offsets/{later.newest - 1}").read_text())
    again = restored(Folder(where), batch, database, dry_run=False)["repeated"]
    assert again["last_exact_batch_id"] == again["last_batch_id"] == later.newest
    Play(spark, database, later.folder).command(max_files_per_trigger=None)
    assert _left(database) == undisturbed
    assert ledger(database)[: len(before)] == before


@pytest.mark.long
def test_plan_refused_by_the_ledger_is_not_reused(
    spark: "SparkSession", later: World, database: str, undisturbed: dict[str, Any]
) -> None:
    """Of a ledger without the names of files, as older versions left it."""
    where, play = str(later.checkpoint), Play(spark, database, later.folder)
    with psycopg.connect(database) as db:
        for number, text in db.execute("SELECT batch_no, source_offsets FROM holdfast.batch"):
            db.execute(
                "UPDATE holdfast.batch SET source_offsets = %s WHERE batch_no = %s",
                [without_files(text)[0], number],
            )
    flip(next(later.checkpoint.glob("sources/0/*.compact")))
    batch = Kept(Folder(where)).restorable()[-1]
    before = ledger(database)
    for _ in range(2):
        again = restored(Folder(where), batch, database, dry_run=False)["repeated"]
        assert (again["last_exact_batch_id"], again["last_batch_id"]) == (batch, later.newest)
        with pytest.raises(QueryFailed, match=ReplayDiverged.__name__):
            play.command(max_files_per_trigger=None)
    # The way out: only the files of before, one a batch as then.
    restored(Folder(where), batch, database, dry_run=False)
    new = sorted((later.folder / "events").iterdir())[FILES:]
    for each in new:
        each.rename(later.folder / each.name)
    play.command()
    assert ledger(database) == before
    for each in new:
        (later.folder / each.name).rename(each)
    play.command()
    assert _left(database) == undisturbed


def test_damaged_snapshots_and_shared_files_are_replaced_by_older_ones(
    spark: "SparkSession", later: World, database: str, undisturbed: dict[str, Any]
) -> None:
    chains = Kept(Folder(str(later.checkpoint))).chains(later.newest)
    for partition, kind in ((0, ".sst"), (1, ".zip")):
        files = [name for name in chains[0, partition].files if name.endswith(kind)]
        flip(later.checkpoint / files[-1])
    assert verified(Folder(str(later.checkpoint)))[1] == ExitCode.DEGRADED
    Play(spark, database, later.folder).command()
    assert _left(database) == undisturbed


def test_start_with_a_lost_plan_or_a_damaged_log_is_refused(
    spark: "SparkSession", later: World, database: str
) -> None:
    play, before = Play(spark, database, later.folder), _left(database)
    (later.checkpoint / "offsets" / str(later.newest)).unlink()
    with pytest.raises(Exception, match="CheckpointBehind") as raised:
        play.command()
    assert CheckpointBehind.__name__ in str(raised.value)
    for name, damage in (
        ("holdfast.json", cut),
        # These Spark would take as they are.
        (f"offsets/{later.newest - 1}", flip),
        (newest_in("sources/0")(later.checkpoint), flip),
    ):
        later.put_back()
        damage(later.checkpoint / name)
        with pytest.raises(CommandError, match=f"{name} in the checkpoint"):
            play.command()
    assert _left(database) == before


def test_deep_verification_decodes_the_state(
    spark: "SparkSession", world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.spark_app.checkpoint_manager import verify
    from holdfast.spark_app.runtime import session

    running = session.fix(spark.newSession())
    monkeypatch.setattr(running, "stop", lambda: None)
    monkeypatch.setattr(verify, "start_quietly", lambda *_: running)
    answer, code = verified(Folder(str(world.checkpoint)), deep=True)
    assert code == ExitCode.OK, answer
    assert answer["deep"]["problem"] is None
    assert answer["deep"]["merchants"] == 5
    assert answer["deep"]["event_ids"] > 0
