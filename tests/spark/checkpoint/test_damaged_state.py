"""A start on a damaged state ends the job at once; one whose file system is away is tried again."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.kept import Kept
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.jobs import Play, event, put

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(shared_play: Play) -> Play:
    """A checkpoint with a few batches, a file that is still to be read, and a copy."""
    for number in range(3):
        lines = [event(f"e{number}-{i}", f"12:{number:02}", 1, f"m_{i}") for i in range(9)]
        put(shared_play.folder / "events", number, lines)
    shared_play.command()
    shutil.copytree(shared_play.folder / "checkpoint", shared_play.folder / "copy")
    put(shared_play.folder / "events", 9, [event("e9", "12:09", 1, f"m_{i}") for i in range(9)])
    return shared_play


@pytest.fixture
def play(made: Play, make_database: Callable[[str | None], str]) -> Play:
    """The job, stopped, with a checkpoint that may be damaged."""
    shutil.rmtree(made.folder / "checkpoint")
    shutil.copytree(made.folder / "copy", made.folder / "checkpoint")
    return Play(made.spark, make_database(conninfo_to_dict(made.dsn)["dbname"]), made.folder)


def _newest_changelog(play: Play) -> Path:
    kept = Kept(Folder(str(play.folder / "checkpoint")))
    assert kept.newest is not None
    return play.folder / "checkpoint" / kept.chains(kept.newest)[0, 0].files[-1]


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x04
    file.write_bytes(content)


def _cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def _cut_without_checksums(file: Path) -> None:
    _cut(file)
    for name in (f".{file.name}.crc", f"{file.name}.crc", f".{file.name}.crc.crc"):
        file.with_name(name).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", [_flip, _cut, _cut_without_checksums, Path.unlink])
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
