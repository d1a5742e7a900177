"""A lost checkpoint: the new one goes on from the windows and holds that Postgres knows."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.job_stream import decided, lasting, ledger
from tests.support.job.jobs import Play, at, event, micros
from tests.support.servers.databases import copy_of
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Files = Sequence[list[bytes]]

BEFORE: Files = [
    # e1 comes twice: in a settled window, a repeat is kept as settled, like the first.
    [event("e1", "12:01", 5_900_000), event("e1", "12:01", 5_900_000)],
    [event("e2", "12:16:30", 5_500_000), event("e3", "12:16:30", 100, "m_2")],
    [event("e4", "12:16:40", 7, "m_2")],
    # A correction of the window until 12:15, which was published: revision 2.
    [event("e5", "12:14", 100_000)],
]
AFTER: Files = [
    [event("e6", "12:34", 1, "m_2"), event("e2", "12:16:30", 5_500_000)],
    [event("e7", "12:50", 1, "m_2")],
]


@pytest.fixture(scope="module")
def published(shared_play: Play) -> Play:
    """A stream that has read `BEFORE`, and holds m_1."""
    shared_play.put(*BEFORE)
    shared_play.command()
    return shared_play


@pytest.fixture
def dsn(published: Play, make_database: Callable[[str | None], str]) -> str:
    """Its database, for one test."""
    return make_database(conninfo_to_dict(published.dsn)["dbname"])


@pytest.fixture
def play(spark: "SparkSession", dsn: str, tmp_path: Path) -> Play:
    """The stream without its checkpoint and without its files."""
    return Play(spark, dsn, tmp_path)


def _kept(play: Play) -> str:
    return (play.checkpoint / "holdfast-initial.json").read_text()


BLOCKED = ("m_1", "payout_hold.block", at("12:15"))


@pytest.mark.guarantee(3)
def test_recomputed_stream_equals_the_undisturbed_one(
    world: World, play: Play, server_dsn: str, template_database: str
) -> None:
    assert decided(world.db) == [BLOCKED]
    settled = "SELECT *, xmin FROM holdfast.exposure_window WHERE window_end = '2024-11-04 12:15Z'"
    before = world.db.execute(settled).fetchall()
    assert [row[4:6] for row in before] == [(2, 6_000_000)]
    play.put(*BEFORE, *AFTER)

    with pytest.raises(QueryFailed, match="UnadoptedCheckpoint") as refused:
        play.command()
    query_id = json.loads((play.checkpoint / "metadata").read_text())["id"]
    assert query_id in str(refused.value)
    assert refused.value.failure.permanent
    # Now that the checkpoint has its id, it is refused before anything is started.
    with pytest.raises(QueryFailed, match=query_id):
        play.command()
    assert not list((play.checkpoint / "commits").glob("[0-9]*"))

    world.db.execute("UPDATE holdfast.stream SET query_id = %s, adopted_at = now()", [query_id])
    play.command()
    until = micros(at("12:15"))
    kept = json.loads(_kept(play))
    assert kept == {"version": 1, "settled_until_us": until, "held": {"m_1": until}}
    assert decided(world.db) == [BLOCKED, ("m_1", "payout_hold.release", at("12:45"))]
    assert world.db.execute(settled).fetchall() == before
    with copy_of(server_dsn, template_database) as dsn:
        undisturbed = Play(play.spark, dsn, world.tmp_path)
        undisturbed.command(checkpoint=str(world.tmp_path / "undisturbed"))
        recomputed = lasting(play.dsn)
        settled_rows = [late for late in recomputed["late"] if late[0] == "settled"]
        recomputed["late"] = [late for late in recomputed["late"] if late[0] != "settled"]
        assert recomputed == lasting(dsn)
    # What the files still have of settled windows is kept, row by row: to be looked at.
    assert [(reason, event_id, at) for reason, event_id, _, _, at, _ in settled_rows] == [
        ("settled", "e1", at("12:01")),
        ("settled", "e1", at("12:01")),
        ("settled", "e5", at("12:14")),
    ]


@pytest.mark.rest
def test_start_refused_before_its_first_batch_binds_nothing(play: Play, published: Play) -> None:
    """Else a corrected second start is refused for the settings of the first."""
    from holdfast.spark_app.checkpoint.shape import Shape

    play.folder.joinpath("wrong").mkdir()
    play.put(*BEFORE, *AFTER)
    wrong = {"paths": (str(play.folder / "wrong"),), "key_groups": 9, "idle_timeout_ms": 60_000}
    with pytest.raises(QueryFailed, match="UnadoptedCheckpoint"):
        play.command(**wrong)
    checkpoint = play.checkpoint
    assert not (checkpoint / "holdfast.json").exists()
    # As where Spark was started too, and ended before it planned.
    play.files().write("holdfast.json", Shape.of(play.job(**wrong)).to_json(f"file:{checkpoint}"))
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint / name).mkdir(parents=True)

    saved = str(play.folder / "saved")
    published.save(str(published.checkpoint), saved)
    files = play.folder / "events"
    with pytest.raises(CommandError, match="other sources"):
        play.command(savepoint=saved, paths=(str(files),), key_groups=5)
    with pytest.raises(QueryFailed, match="UnadoptedCheckpoint"):
        play.command(key_groups=5)
    play.command(savepoint=saved, paths=(str(published.folder / "events"),), key_groups=5)
    assert json.loads((checkpoint / "holdfast.json").read_text())["key_groups"] == 5
    assert (checkpoint / "commits" / "0").exists()


@pytest.mark.rest
def test_a_hold_is_released_also_where_the_old_files_are_gone(
    play: Play, db: psycopg.Connection
) -> None:
    _adopt_the_next(db)
    play.put([event("e6", "12:34", 1, "m_2")], [event("e7", "12:50", 1, "m_2")])
    play.command()
    # What m_1 did after 12:15 was in the old files alone: its next window is an empty one.
    assert decided(db) == [BLOCKED, ("m_1", "payout_hold.release", at("12:30"))]


@pytest.mark.rest
def test_first_batch_is_repeated_from_the_checkpoint(play: Play, db: psycopg.Connection) -> None:
    """As after a crash between the sink's commit and Spark's, with a database that moved on."""
    from pyspark.errors import StreamingQueryException

    _adopt_the_next(db)
    play.put(*BEFORE[:1])
    play.command()
    kept, before = _kept(play), lasting(play.dsn)
    written = ledger(play.dsn)

    _forget_batches(play.checkpoint, db)
    db.execute("UPDATE holdfast.transition SET last_type = 'payout_hold.release'")
    play.command()
    assert _kept(play) == kept
    db.execute("UPDATE holdfast.transition SET last_type = 'payout_hold.block'")
    assert (lasting(play.dsn), ledger(play.dsn)) == (before, written)

    # It is the kept state that makes them equal: to a batch from nothing, e1 comes twice.
    _forget_batches(play.checkpoint, db)
    with pytest.raises(StreamingQueryException, match="ReplayDiverged"):
        play.run()


def _adopt_the_next(db: psycopg.Connection) -> None:
    """Let the stream take the next query id, as if it had been adopted already."""
    db.execute("UPDATE holdfast.stream SET query_id = NULL, adopted_at = NULL")


def _forget_batches(checkpoint: Path, db: psycopg.Connection) -> None:
    """Leave what is there when Spark dies after the sink's first commit."""
    db.execute("""
        DELETE FROM holdfast.batch USING holdfast.stream
        WHERE batch.query_id = stream.query_id AND batch_id > 0""")
    for path in (checkpoint / "commits").iterdir():
        path.unlink()
    for path in (checkpoint / "offsets").iterdir():
        if path.name not in ("0", ".0.crc"):
            path.unlink()


def test_a_stream_without_a_past_begins_from_nothing(
    spark: "SparkSession", server_dsn: str, template_database: str, tmp_path: Path
) -> None:
    from holdfast.spark_app.checkpoint.journal import claim

    with copy_of(server_dsn, template_database) as dsn:
        play = Play(spark, dsn, tmp_path)
        job = play.job()
        with closing(play.sink(job)) as sink:
            assert claim(play.files(), job, sink).initial is None
    assert json.loads(_kept(play)) == {"version": 1, "settled_until_us": None, "held": {}}
