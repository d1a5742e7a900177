"""A checkpoint that went back repeats the batches of before as they were planned.

In other batches the job decides otherwise here: read together, the correction comes before the
window is emitted, and nothing is decided. What was published would stand against a state that does
not know it.
"""

from collections.abc import Callable
from contextlib import closing
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
from tests.support.dispatch.entries import BLOCK, RELEASE
from tests.support.job.jobs import Play, event, put
from tests.support.job.outbox import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


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


@pytest.fixture
def play(spark: "SparkSession", dsn: str, tmp_path: Path) -> Play:
    """A stream that has read one file a batch, and has blocked and released a merchant."""
    found = Play(spark, dsn, tmp_path)
    for number, lines in enumerate(FILES):
        put(found.folder / "events", number, lines)
    found.command()
    return found


def _said(db: psycopg.Connection, merchant: str = "m_1") -> list[str]:
    rows = db.execute(
        "SELECT type FROM holdfast.entry JOIN holdfast.subject ON subject.id = subject_id"
        " WHERE name = %s ORDER BY sequence",
        [merchant],
    )
    return [each for (each,) in rows]


def _ledger(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "SELECT query_id, batch_id, differing_count FROM holdfast.batch ORDER BY batch_no"
    ).fetchall()


def test_restored_checkpoint_repeats_its_batches_whatever_the_files_for_each_are(
    play: Play, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _said(db) == [BLOCK, RELEASE]
    before = _ledger(db)
    restored(Folder(str(play.folder / "checkpoint")), 0, play.dsn, dry_run=False)
    for point in ("K3", "K4"):
        with monkeypatch.context() as armed:
            armed.setattr("holdfast.sink.contract.failpoints._armed", f"{point}=raise")
            armed.setattr("holdfast.sink.contract.failpoints._passed", {})
            with pytest.raises(QueryFailed, match=point):
                play.command(max_files_per_trigger=None)
    play.command(max_files_per_trigger=None)
    assert (_said(db), _ledger(db)) == ([BLOCK, RELEASE], before)
    put(play.folder / "events", len(FILES), LATER)
    play.command(max_files_per_trigger=None)
    assert _said(db) == [BLOCK, RELEASE, BLOCK]
    assert not any(differing for _, _, differing in _ledger(db))


def test_savepoint_that_is_older_than_its_stream_repeats_the_batches_since(
    play: Play, db: psycopg.Connection
) -> None:
    saved, new = str(play.folder / "saved"), str(play.folder / "new")
    play.save(str(play.folder / "checkpoint"), saved, 0)
    before = _ledger(db)
    changed: dict[str, Any] = {
        "savepoint": saved,
        "checkpoint": new,
        "key_groups": 8,
        "max_files_per_trigger": None,
    }
    play.command(**changed)
    assert _said(db) == [BLOCK, RELEASE]
    after = _ledger(db)[len(before) :]
    assert [batch for _, batch, _ in after] == list(range(len(before)))

    # The state of the old checkpoint does not have what the new one publishes.
    db.execute("UPDATE holdfast.stream SET query_id = %s", [before[0][0]])
    for start in ({}, changed | {"checkpoint": str(play.folder / "other")}):
        with pytest.raises(CommandError, match=f"went on with query {after[0][0]}"):
            play.command(**start)
    db.execute("UPDATE holdfast.stream SET query_id = %s", [after[0][0]])
    put(play.folder / "events", len(FILES), LATER)
    play.command(**changed)
    assert _said(db) == [BLOCK, RELEASE, BLOCK]
    assert not any(differing for _, _, differing in _ledger(db))


def test_savepoint_of_a_stream_that_continued_needs_its_checkpoint(
    play: Play, db: psycopg.Connection
) -> None:
    saved, new = str(play.folder / "saved"), play.folder / "new"
    play.save(str(play.folder / "checkpoint"), saved, 0)
    (play.folder / "checkpoint").rename(play.folder / "elsewhere")
    before = _ledger(db)
    stored = db.execute("SELECT batch_no, source_offsets FROM holdfast.batch").fetchall()
    for number, text in stored:
        _store(db, number, without_files(text)[0])
    with pytest.raises(CommandError, match=r"went on to batch 3\..* it is not there"):
        play.command(savepoint=saved, checkpoint=str(new))
    assert (_ledger(db), new.exists()) == (before, False)

    for number, text in stored:
        _store(db, number, text)
    play.command(savepoint=saved, checkpoint=str(new), max_files_per_trigger=None)
    assert _said(db) == [BLOCK, RELEASE]
    assert [batch for _, batch, _ in _ledger(db)[len(before) :]] == list(range(len(before)))


def _store(db: psycopg.Connection, batch_no: int, offsets: str) -> None:
    db.execute(
        "UPDATE holdfast.batch SET source_offsets = %s WHERE batch_no = %s", [offsets, batch_no]
    )


def test_file_that_changed_since_is_refused_when_its_batch_is_repeated(
    play: Play, db: psycopg.Connection
) -> None:
    before = _ledger(db)
    restored(Folder(str(play.folder / "checkpoint")), 0, play.dsn, dry_run=False)
    put(play.folder / "events", 3, [event("e4", "12:02", -3, "m_1")])
    with pytest.raises(QueryFailed, match=ReplayDiverged.__name__):
        play.command()
    assert (_said(db), _ledger(db)) == ([BLOCK, RELEASE], before)


def test_database_that_was_put_back_gets_the_batches_that_it_lost(
    spark: "SparkSession",
    dsn: str,
    make_database: Callable[[str | None], str],
    tmp_path: Path,
) -> None:
    play = Play(spark, dsn, tmp_path)
    for number, lines in enumerate(FILES[:3]):
        put(play.folder / "events", number, lines)
    play.command()
    older = Play(spark, make_database(conninfo_to_dict(dsn)["dbname"]), tmp_path)
    put(play.folder / "events", 3, FILES[3])
    play.command()
    with pytest.raises(QueryFailed, match=LedgerBehind.__name__):
        older.command()
    restored(Folder(str(play.folder / "checkpoint")), 2, older.dsn, dry_run=False)
    older.command(max_files_per_trigger=None)
    with psycopg.connect(dsn) as whole, psycopg.connect(older.dsn) as mended:
        assert contents(mended) == contents(whole)


def test_restore_moves_what_a_hidden_driver_planned_until_it_was_fenced(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start continues after that plan, and its state is not that of the batch."""
    checkpoint = play.folder / "checkpoint"
    newest, fence = max(Folder(str(checkpoint)).batches("offsets")), restore._fence
    later = [f"{log}/{newest + 1}" for log in ("offsets", "sources/0")]

    def fenced(*given: Any) -> None:
        for name in later:
            (checkpoint / name).write_text((checkpoint / "offsets" / str(newest)).read_text())
        fence(*given)

    monkeypatch.setattr(restore, "_fence", fenced)
    moved = restored(Folder(str(checkpoint)), 1, play.dsn, dry_run=False)["moved_files"]
    assert set(later) <= set(moved)
    assert max(Folder(str(checkpoint)).batches("offsets")) == 1

    query_id = Folder(str(checkpoint)).query_id()
    assert query_id is not None

    def started(*given: Any) -> None:
        fence(*given)
        with closing(OutboxSink(play.dsn, stream="payouts")) as driver:
            driver.start(query_id, uuid4())

    monkeypatch.setattr(restore, "_fence", started)
    files = Folder(str(checkpoint)).files
    with pytest.raises(CommandError, match="Fenced"):
        restored(Folder(str(checkpoint)), 0, play.dsn, dry_run=False)
    assert Folder(str(checkpoint)).files == files
