"""A checkpoint that went back repeats the batches of before as they were planned.

In other batches the job decides otherwise here: read together, the correction comes before the
window is emitted, and nothing is decided. What was published would stand against a state that does
not know it.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink import LedgerBehind, OutboxSink, ReplayDiverged
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.source_offsets import without_files
from holdfast.spark_app.checkpoint_manager import restore
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.job.job_stream import contents, decided, ledger
from tests.support.job.jobs import Play, armed, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.rest

FILES = [
    [event("e1", "12:01", 6_000_000)],
    # The first moves the watermark, and the batch of the second emits 12:00-12:15: block.
    [event("e2", "12:16:10", 1, "m_2")],
    [event("e3", "12:16:20", 1, "m_2")],
    # A correction: release.
    [event("e4", "12:02", -2_000_000)],
]
LATER = [event("e9", "12:03", 9_000_000)]
"""A correction in the same window: block."""


@pytest.fixture(scope="module")
def finished(shared_play: Play) -> Play:
    """A stream that has read one file a batch, and has blocked and released a merchant."""
    shared_play.put(*FILES)
    shared_play.command()
    shutil.copytree(shared_play.checkpoint, shared_play.folder / "kept")
    return shared_play


@pytest.fixture
def dsn(finished: Play, make_database: Callable[[str | None], str]) -> str:
    """Its database, for one test."""
    return make_database(conninfo_to_dict(finished.dsn)["dbname"])


@pytest.fixture
def play(finished: Play, dsn: str) -> Iterator[Play]:
    """The stream for one test, in its folder, which is as before afterwards."""
    yield replace(finished, dsn=dsn)
    for each in finished.folder.iterdir():
        if each.name != "kept":
            shutil.rmtree(each)
    shutil.copytree(finished.folder / "kept", finished.checkpoint)
    finished.put(*FILES)


def _said(play: Play) -> list[str]:
    with psycopg.connect(play.dsn) as db:
        return [type_ for _, type_, _ in decided(db, "m_1")]


def test_restored_checkpoint_repeats_batches_whatever_their_file_count(play: Play) -> None:
    assert _said(play) == [BLOCK, RELEASE]
    before = ledger(play.dsn)
    restored(Folder(str(play.checkpoint)), 0, play.dsn, dry_run=False)
    for point in ("K3", "K4"):
        with armed(f"{point}=raise"), pytest.raises(QueryFailed, match=point):
            play.command(max_files_per_trigger=None)
    play.command(max_files_per_trigger=None)
    assert (_said(play), ledger(play.dsn)) == ([BLOCK, RELEASE], before)
    play.put(LATER, first=len(FILES))
    play.command(max_files_per_trigger=None)
    assert _said(play) == [BLOCK, RELEASE, BLOCK]
    assert not any(differing for _, _, differing, _ in ledger(play.dsn))


def test_older_savepoint_repeats_the_batches_since(play: Play, db: psycopg.Connection) -> None:
    saved, new = str(play.folder / "saved"), play.folder / "new"
    play.save(str(play.checkpoint), saved, 0)
    before = ledger(play.dsn)
    changed: dict[str, Any] = {
        "savepoint": saved,
        "checkpoint": str(new),
        "key_groups": 8,
        "max_files_per_trigger": None,
    }
    # Of a ledger without the names of files, the plans are in the checkpoint that continued.
    play.checkpoint.rename(play.folder / "elsewhere")
    stored = db.execute("SELECT batch_no, source_offsets FROM holdfast.batch").fetchall()
    for number, text in stored:
        _store(db, number, without_files(text)[0])
    with pytest.raises(CommandError, match=r"went on to batch 3\..* it is not there"):
        play.command(**changed)
    assert (ledger(play.dsn), new.exists()) == (before, False)
    for number, text in stored:
        _store(db, number, text)
    play.command(**changed)
    assert _said(play) == [BLOCK, RELEASE]
    after = ledger(play.dsn)[len(before) :]
    assert [batch for _, batch, *_ in after] == list(range(len(before)))

    # The state of the old checkpoint does not have what the new one publishes.
    (play.folder / "elsewhere").rename(play.checkpoint)
    db.execute("UPDATE holdfast.stream SET query_id = %s", [before[0][0]])
    for start in ({}, changed | {"checkpoint": str(play.folder / "other")}):
        with pytest.raises(CommandError, match=f"continued with query {after[0][0]}"):
            play.command(**start)
    db.execute("UPDATE holdfast.stream SET query_id = %s", [after[0][0]])
    play.put(LATER, first=len(FILES))
    play.command(**changed)
    assert _said(play) == [BLOCK, RELEASE, BLOCK]
    assert not any(differing for _, _, differing, _ in ledger(play.dsn))


def _store(db: psycopg.Connection, batch_no: int, offsets: str) -> None:
    db.execute(
        "UPDATE holdfast.batch SET source_offsets = %s WHERE batch_no = %s", [offsets, batch_no]
    )


def test_changed_file_is_refused_when_its_batch_is_repeated(play: Play) -> None:
    before = ledger(play.dsn)
    restored(Folder(str(play.checkpoint)), 0, play.dsn, dry_run=False)
    play.put([event("e4", "12:02", -3, "m_1")], first=3)
    with pytest.raises(QueryFailed, match=ReplayDiverged.__name__):
        play.command()
    assert (_said(play), ledger(play.dsn)) == ([BLOCK, RELEASE], before)


def test_restored_database_gets_its_lost_batches(
    spark: "SparkSession",
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    play = Play(spark, make_database(template_database), tmp_path)
    play.put(*FILES[:3])
    play.command()
    older = replace(play, dsn=make_database(conninfo_to_dict(play.dsn)["dbname"]))
    play.put(FILES[3], first=3)
    play.command()
    with pytest.raises(QueryFailed, match=LedgerBehind.__name__):
        older.command()
    restored(Folder(str(play.checkpoint)), 2, older.dsn, dry_run=False)
    older.command(max_files_per_trigger=None)
    with psycopg.connect(play.dsn) as full, psycopg.connect(older.dsn) as mended:
        assert contents(mended) == contents(full)


def test_restore_moves_plans_of_a_driver_fenced_later(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start continues after that plan, and its state is not that of the batch."""
    checkpoint = play.checkpoint
    newest, fence = max(Folder(str(checkpoint)).batches("offsets")), restore._fence
    later = [f"{log}/{newest + 1}" for log in ("offsets", "sources/0")]

    def fenced(*arguments: Any) -> None:
        for name in later:
            (checkpoint / name).write_text((checkpoint / "offsets" / str(newest)).read_text())
        fence(*arguments)

    monkeypatch.setattr(restore, "_fence", fenced)
    moved = restored(Folder(str(checkpoint)), 1, play.dsn, dry_run=False)["moved_files"]
    assert set(later) <= set(moved)
    assert max(Folder(str(checkpoint)).batches("offsets")) == 1

    query_id = Folder(str(checkpoint)).query_id()
    assert query_id is not None

    def started(*arguments: Any) -> None:
        fence(*arguments)
        with closing(OutboxSink(play.dsn, stream="payouts")) as driver:
            driver.start(query_id, uuid4())

    monkeypatch.setattr(restore, "_fence", started)
    files = Folder(str(checkpoint)).files
    with pytest.raises(CommandError, match="Fenced"):
        restored(Folder(str(checkpoint)), 0, play.dsn, dry_run=False)
    assert Folder(str(checkpoint)).files == files
