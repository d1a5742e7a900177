"""A start on a damaged state ends the job at once; one whose file system is away is tried again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.kept import Kept
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.damage import cut, flip, gone
from tests.support.job.jobs import Play, busy, event

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def made(shared_play: Play) -> Play:
    """A checkpoint with a few batches, a file that is still to be read, and a copy."""
    shared_play.put(*(busy(number, number, 9) for number in range(3)))
    shared_play.command()
    shutil.copytree(shared_play.checkpoint, shared_play.folder / "copy")
    shared_play.put([event("e9", "12:09", 1, f"m_{i}") for i in range(9)], first=9)
    return shared_play


@pytest.fixture
def play(made: Play, make_database: Callable[[str | None], str]) -> Play:
    """The job, stopped, with a checkpoint that may be damaged."""
    shutil.rmtree(made.checkpoint)
    shutil.copytree(made.folder / "copy", made.checkpoint)
    return Play(made.spark, make_database(conninfo_to_dict(made.dsn)["dbname"]), made.folder)


def _newest_changelog(play: Play) -> Path:
    kept = Kept(Folder(str(play.checkpoint)))
    assert kept.newest is not None
    return play.checkpoint / kept.chains(kept.newest)[0, 0].files[-1]


def _cut_without_checksums(file: Path) -> None:
    cut(file)
    for name in (f".{file.name}.crc", f"{file.name}.crc", f".{file.name}.crc.crc"):
        file.with_name(name).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", [flip, cut, _cut_without_checksums, gone])
def test_a_damaged_state_file_is_final_and_names_the_way_out(
    play: Play, damage: Callable[[Path], None]
) -> None:
    damage(_newest_changelog(play))
    with pytest.raises(QueryFailed, match="job checkpoints verify` names the damaged") as raised:
        play.command()
    assert raised.value.failure.permanent


def test_a_state_folder_that_is_away_is_tried_again(play: Play) -> None:
    folder = _newest_changelog(play).parent
    folder.rename(folder.with_name("away"))
    with pytest.raises(QueryFailed, match="job checkpoints verify` names the damaged") as raised:
        play.command()
    assert not raised.value.failure.permanent
