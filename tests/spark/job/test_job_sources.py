"""Sources of a job: several paths, files that are gone, and Spark's log of files."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest

from holdfast.deploy.local.demo.reference import Event as Row
from holdfast.deploy.local.demo.reference import Reference
from holdfast.sink import OutboxSink
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.errors import Fenced
from holdfast.sink.rows.batch import BatchInput
from holdfast.spark_app.checkpoint_manager.batch_input import read_by
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.exposure.settings import SECOND_US, Settings
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.job_stream import SETTINGS, ledger, published, required, stream
from tests.support.job.jobs import POLICY, Play, armed, event, forget_commit, order, patiently, put
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.spark_app.lifecycle.failure import Failure
    from holdfast.spark_app.lifecycle.idle_clock import IdleClock
    from holdfast.spark_app.reporting.batch_counts import FinishedBatch
    from holdfast.spark_app.reporting.metrics import Metrics

WINDOW = timedelta(minutes=15)


def _plan(checkpoint: Path, batch_id: int) -> tuple[dict[str, Any], list[str]]:
    """The clocks of a planned batch, and the end of its input in each source."""
    _, described, *sources = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    return json.loads(described), sources


def _batches(checkpoint: Path) -> int:
    return max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*")) + 1


def _files_of(checkpoint: Path, source: int) -> Iterator[tuple[int, Path]]:
    """The files of a source in Spark's log, each with its place there."""
    entries = {}
    for log in (checkpoint / "sources" / str(source)).glob("[0-9]*"):
        for entry in map(json.loads, log.read_text().splitlines()[1:]):
            entries[entry["path"]] = entry["batchId"]
    for path, number in entries.items():
        yield number, Path(path.removeprefix("file://"))


def _cut(checkpoint: Path, sources: int) -> list[list[Path]]:
    """The files of each batch, of all sources together."""
    logs = [dict(_files_of(checkpoint, source)) for source in range(sources)]
    before, cut = [-1] * sources, []
    for batch_id in range(_batches(checkpoint)):
        _, planned = _plan(checkpoint, batch_id)
        ends = [-1 if end == "-" else json.loads(end)["logOffset"] for end in planned]
        cut.append(
            [
                log[number]
                for log, begin, end in zip(logs, before, ends, strict=True)
                for number in range(begin + 1, end + 1)
            ]
        )
        before = ends
    return cut


def _read_by(checkpoint: Path, batch_id: int, dsn: str | None) -> list[Path]:
    """The files of a batch as `job checkpoints input` names them."""
    sources = read_by(Folder(str(checkpoint)), batch_id, dsn)["sources"]
    return [Path(uri.removeprefix("file://")) for each in sources for uri in each.get("files", ())]


def _watermarks(batches: Sequence[Sequence[Row]]) -> Iterator[int | None]:
    """W of each batch: the newest time of earlier ones, of any source, less the delay."""
    newest = None
    for rows in batches:
        yield None if newest is None else newest // 1000 * 1000 - SETTINGS.watermark_delay_us
        plausible = [row.occurred_at_us for row in rows if not row.future_dated]
        newest = max([*plausible, *([] if newest is None else [newest])], default=None)


@pytest.mark.rest
def test_slow_second_path_and_a_crash_equal_the_reference(
    world: World, spark: "SparkSession"
) -> None:
    made = stream(24, 9)
    fast, slow, checkpoint = (world.tmp_path / name for name in ("events", "slow", "checkpoint"))
    # What the slow path has is ahead of the other one, whose next files are late for some windows.
    for number in (0, 1, 2, 3, 6, 7):
        made.put_one(fast, number)
    made.put_one(slow, 4)
    paths = (str(fast), str(slow))
    play = Play(spark, world.dsn, world.tmp_path, {"settings": SETTINGS, "key_groups": 8})
    with armed("S8=raise@3"), pytest.raises(QueryFailed, match="FailpointHit: S8"):
        play.command(paths=paths)
    assert world.db.execute("SELECT max(batch_id) FROM holdfast.batch").fetchone() == (2,)

    made.put_one(slow, 5)
    made.put_one(slow, 8)
    play.command(paths=paths)

    cut = _cut(checkpoint, 2)
    assert [_read_by(checkpoint, number, None) for number in range(len(cut))] == cut
    files = [path.name for batch in cut for path in batch]
    assert sorted(files) == [f"{number:03}.json" for number in range(9)]
    assert {len({path.parent for path in batch}) for batch in cut} >= {1, 2}
    batches = [[row for path in batch for row in made.files[int(path.stem)]] for batch in cut]
    watermarks = [*_watermarks(batches)]
    assert [_plan(checkpoint, n)[0]["batchWatermarkMs"] * 1000 for n in range(len(cut))] == [
        watermark or 0 for watermark in watermarks
    ]
    (world.tmp_path / "reference.toml").write_text(POLICY)
    reference = Reference(world.tmp_path / "reference.toml", late_cutoff_us=SETTINGS.late_cutoff_us)
    expected = [reference.batch(*each) for each in zip(batches, watermarks, strict=True)]
    assert published(world.dsn) == required(expected)
    assert any(batch.late for batch in expected)
    # The ledger keeps the plans that a checkpoint no longer has.
    for number in range(len(cut) - 2):
        (checkpoint / "offsets" / str(number)).unlink()
    assert [_read_by(checkpoint, number, world.dsn) for number in range(len(cut) - 2)] == cut[:-2]
    # And the names of the files, when the logs are lost.
    for log in ("sources/0", "sources/1"):
        shutil.rmtree(checkpoint / log)
    assert [_read_by(checkpoint, number, world.dsn) for number in range(len(cut))] == cut


@pytest.mark.rest
def test_unfinished_checkpoint_gains_a_path_and_the_idle_clock(
    world: World, spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    play, checkpoint = Play(spark, world.dsn, world.tmp_path), world.tmp_path / "checkpoint"
    events, more = world.tmp_path / "events", world.tmp_path / "more"
    put(events, 0, [event("e0", "12:01", 6_000_000)])
    put(events, 1, [event("e1", "12:20", 1)])
    play.command()
    newest = _batches(checkpoint) - 1
    forget_commit(checkpoint, newest)
    record = checkpoint / "holdfast.json"
    old = {**json.loads(record.read_text()), "version": 2, "format": "json"}
    # As the version before recorded it.
    del old["sources"]
    record.write_text(json.dumps(old))
    (checkpoint / ".holdfast.json.crc").unlink()
    play.command(idle_timeout_ms=60_000)

    put(more, 0, [event("e2", "12:21", 20), event("e1", "12:20", 1)])
    put(events, 2, [event("e3", "12:40", 0)])
    capsys.readouterr()
    forget_commit(checkpoint, newest)
    play.command(paths=(str(more), str(events)))
    assert [source.get("path") for source in json.loads(record.read_text())["sources"]] == [
        str(events),
        None,
        str(more),
    ]
    errors = capsys.readouterr().err.splitlines()
    assert f"batch={newest} outcome=replayed rows=0 " in errors[0]
    assert f"batch={newest + 1} outcome=written rows=3 " in errors[1]
    ends = ['{"logOffset":1}', "-", "-"]
    assert _plan(checkpoint, newest)[1] == ends
    assert _plan(checkpoint, newest + 1)[1] == ['{"logOffset":2}', "-", '{"logOffset":0}']
    windows = world.db.execute(
        "SELECT to_char(window_end, 'HH24:MI'), exposure_minor FROM holdfast.exposure_window"
        " ORDER BY 1"
    )
    assert windows.fetchall() == [("12:15", 6_000_000), ("12:30", 21)]
    late = world.db.execute("SELECT event_id, reason::text FROM holdfast.late_event").fetchall()
    assert late == [("e1", "duplicate")]


def _quarter(moment: datetime) -> datetime:
    """The quarter of an hour that a moment is in, from its start."""
    return moment - (moment - datetime(2026, 1, 1, tzinfo=UTC)) % WINDOW


def _on(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


@pytest.mark.rest
def test_hold_ends_in_real_time_though_the_stream_is_silent(
    world: World, spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    events, woken = world.tmp_path / "events", world.tmp_path / "woken"
    # The window after the one that blocks has just ended on the clock, and no event says so.
    ended = _quarter(datetime.now(UTC) - timedelta(seconds=6)) - WINDOW
    before, after = (_on(ended + timedelta(seconds=seconds)) for seconds in (-60, 5))
    rows = [("e1", "m_1", 6_000_000, before), ("e2", "m_2", 1, after)]
    put(events, 0, [event(i, "12:00", n, m, occurred_at=at) for i, m, n, at in rows])
    # Batch 0 reads the file, batch 1 blocks, batch 2 reads a tick, is written, and never recorded.
    options = {"settings": Settings(watermark_delay_us=SECOND_US), "idle_timeout_ms": 9_000}
    play = Play(spark, world.dsn, world.tmp_path, options)
    with (
        armed("S8=raise@3"),
        play.attempt(interval_ms=100, idle_timeout_ms=2_000) as run,
        pytest.raises(QueryFailed, match="FailpointHit: S8"),
    ):
        patiently(run)
    held = [("payout_hold.block",)]
    assert (
        world.db.execute("SELECT type FROM holdfast.entry ORDER BY occurred_at").fetchall() == held
    )

    capsys.readouterr()
    checkpoint = world.tmp_path / "checkpoint"
    metrics = _until_released(play)
    # The timeout of the first run, and the clock of its batch.
    planned = _plan(checkpoint, 2)[0]
    assert planned["batchWatermarkMs"] == _ms(ended + timedelta(seconds=4))
    assert _plan(checkpoint, 3)[0]["batchWatermarkMs"] == planned["batchTimestampMs"] - 3_000
    assert "batch=2 outcome=replayed rows=0 " in (errors := capsys.readouterr().err)
    assert [line.rpartition(" ")[2] for line in errors.splitlines() if " idle=" in line] == [
        "idle=1"
    ]
    counted = metrics.registry.get_sample_value("holdfast_job_idle_ticks_total", {"stream": ""})
    assert counted == 1
    decisions = world.db.execute(
        "SELECT type, occurred_at FROM holdfast.entry ORDER BY occurred_at"
    ).fetchall()
    assert decisions == [("payout_hold.block", ended), ("payout_hold.release", ended + WINDOW)]
    assert world.db.execute("SELECT count(*) FROM holdfast.late_event").fetchone() == (0,)

    # A source that was silent all along: what is recent counts, what the clock has passed is late.
    rows = [("e3", "m_1", 7, _on(datetime.now(UTC))), ("e4", "m_1", 7, before)]
    put(woken, 0, [event(i, "12:00", n, m, occurred_at=at) for i, m, n, at in rows])
    play.command(paths=(str(events), str(woken)))
    late = world.db.execute("SELECT event_id, reason::text FROM holdfast.late_event").fetchall()
    assert late == [("e4", "late")]
    assert not [*(checkpoint / "holdfast-ticks").iterdir()]

    # The batch of the tick is repeated with it.
    plans, batches = [_plan(checkpoint, number)[0] for number in (2, 3)], ledger(world.dsn)
    restored(Folder(str(checkpoint)), 1, world.dsn, dry_run=False)
    play.command(paths=(str(events), str(woken)))
    assert [_plan(checkpoint, number)[0] for number in (2, 3)] == plans
    assert ledger(world.dsn)[: len(batches)] == batches
    assert world.db.execute("SELECT count(*) FROM holdfast.late_event").fetchone() == (1,)
    assert not [*(checkpoint / "holdfast-ticks").iterdir()]
    _refuses_to_tick_without(play, woken)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _until_released(play: Play) -> "Metrics":
    """Run the job as a service until it has written a decision."""
    from holdfast.spark_app.reporting.batch_counts import BatchCounter
    from holdfast.spark_app.reporting.metrics import Metrics

    stop, metrics = Event(), Metrics()

    def done(batch: "FinishedBatch") -> None:
        if batch.outcome.counts.entries:
            stop.set()

    counter = BatchCounter(done)
    with play.attempt(stop, interval_ms=100, sink={"select": counter.select}) as run:
        patiently(lambda: run(counter=counter, metrics=metrics))
    return metrics


@pytest.mark.rest
def test_a_tick_that_its_batch_reads_too_late_moves_nothing(spark: "SparkSession") -> None:
    from holdfast.spark_app.input.ticks import packed

    now = time.time_ns() // 1_000_000
    ticks = [(now - 60_000, 600_000), (now - 600_001, 600_000), (None, None)]
    rows = packed(spark.createDataFrame(ticks, "known_ms long, timeout_ms long"), 7).collect()
    assert [row.plausible_at is None for row in rows] == [False, True, True]
    assert {(row.key_group, row.events, row.refused) for row in rows} == {(7, None, None)}
    moved = _ms(rows[0].plausible_at.astimezone(UTC))
    assert now - 600_000 <= moved <= time.time_ns() // 1_000_000 - 600_000


def _refuses_to_tick_without(play: Play, folder: Path) -> None:
    """A directory that has disappeared is not silent; Spark reads it as one without files."""
    from holdfast.spark_app.input.missing_files import FileGone
    from holdfast.spark_app.lifecycle.idle_clock import idle_clock

    job = play.job(paths=(str(folder),), idle_timeout_ms=1)
    clock = idle_clock(play.spark, replace(job, sources=job.declared), 100)
    assert clock
    folder.rename(folder.with_name("away"))
    with pytest.raises(FileGone, match=f"{folder} is gone"):
        _be_silent(clock)
    folder.with_name("away").rename(folder)
    _be_silent(clock)
    [tick] = (play.checkpoint / "holdfast-ticks").glob("[0-9]*.json")
    assert json.loads(tick.read_text())["timeout_ms"] == 1


def _be_silent(clock: "IdleClock") -> None:
    time.sleep(0.01)
    waits = {"isDataAvailable": False, "message": "Waiting for next trigger"}
    clock.ask(cast("StreamingQuery", SimpleNamespace(status=waits)))
    clock.observe(0)


@pytest.mark.rest
def test_listed_but_unplanned_files_are_read_one_a_batch(
    play: Play, db: psycopg.Connection
) -> None:
    checkpoint = play.checkpoint
    play.put([event("e1", "12:01", 6_000_000)])
    play.command()
    written = ledger(play.dsn)

    # Nothing newer than before, so that no batch without rows follows.
    play.put([event("e2", "12:00", 1), event("e1", "12:01", 6_000_000)], first=1)
    play.command()
    grown = ledger(play.dsn)
    assert len(grown) == len(written) + 1
    # As if the JVM had died when the second file was on the list and no batch was planned for it:
    # what comes then has to be what was.
    db.execute("DELETE FROM holdfast.batch WHERE batch_id >= %s", [len(written)])
    db.execute("DELETE FROM holdfast.late_event")
    for folder in ("offsets", "commits"):
        for path in (checkpoint / folder).iterdir():
            if int(path.name.strip(".").removesuffix(".crc")) >= len(written):
                path.unlink()

    play.put([event("e3", "12:21", 1), event("e2", "12:00", 1)], first=2)
    play.command()
    assert ledger(play.dsn)[: len(grown)] == grown
    late = db.execute("SELECT event_id, reason FROM holdfast.late_event ORDER BY id")
    assert late.fetchall() == [("e1", "duplicate"), ("e2", "duplicate")]


@pytest.mark.guarantee(4)
def test_driver_that_was_replaced_removes_nothing_from_the_checkpoint(
    play: Play, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of the newer driver has no plan yet: that of a dead driver would be removed."""
    from holdfast.spark_app.checkpoint import journal

    play.put([event("e1", "12:01", 6_000_000)])
    play.command()
    checkpoint = play.checkpoint
    listed = checkpoint / "sources" / "0" / "1"
    query_id = UUID(json.loads((checkpoint / "metadata").read_text())["id"])
    forget, newer_run = journal.forget_unplanned, uuid4()

    def replaced(*arguments: Any) -> None:
        with closing(OutboxSink(dsn, stream="payouts")) as newer:
            newer.start(query_id, newer_run)
        listed.write_text("v1")
        forget(*arguments)

    monkeypatch.setattr(journal, "forget_unplanned", replaced)
    with pytest.raises(QueryFailed, match=f"{Fenced.__name__}: .*run {newer_run} took the stream"):
        play.command()
    assert listed.read_text() == "v1"


@pytest.mark.rest
def test_plan_of_a_dead_driver_without_its_list_is_dropped(
    play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was on its way while this driver removed a list that nobody had planned."""
    play.put([event("e1", "12:01", 6_000_000)])
    play.command()
    plans = play.checkpoint / "offsets"
    newest = len(ledger(play.dsn)) - 1
    plan = (plans / str(newest)).read_text()
    late = plans / str(newest + 1)
    late.write_text(plan.replace('{"logOffset":0}', '{"logOffset":1}'))

    # Nothing newer than before, so that no batch without rows follows.
    play.put([event("e2", "12:00", 1)], first=1)
    play.command()
    assert f"dropped the plan of batch {newest + 1}" in capsys.readouterr().err
    assert len(ledger(play.dsn)) == newest + 2

    # One that the ledger has was written from this list: then the checkpoint is damaged.
    (play.checkpoint / "commits" / str(newest + 1)).unlink()
    (play.checkpoint / "sources" / "0" / "1").unlink()
    with pytest.raises(CommandError, match="sources/0/1 is missing"):
        play.command()
    assert late.exists()


@pytest.mark.rest
def test_missing_file_stops_the_job_until_it_is_back(play: Play, db: psycopg.Connection) -> None:
    from holdfast.spark_app.lifecycle.failure import Cause
    from holdfast.spark_app.operator import output

    events, archive = play.folder / "events", play.folder / "archive"
    archive.mkdir()
    amounts = enumerate([1, 20, 300])
    play.put(*([event(f"e{number}", "12:01", amount)] for number, amount in amounts))
    play.put([event("last", "12:20", 0, merchant="m_2")], first=3)
    # Each batch has a file too which Spark takes for a pattern, and then has the other one twice.
    for number in range(4):
        (pattern := events / f"[{number}].json").touch()
        order(pattern, number)
    missed: list[Failure] = []
    listed = ["001.json", "002.json"]

    def archive_next(blobs: pa.Table) -> BatchInput:
        """Spark has listed all files in the first batch of a run, and planned those of one."""
        if listed:
            name = listed.pop(0)
            (events / name).rename(archive / name)
        return output.select(blobs)

    def mend(failure: "Failure") -> None:
        if failure.cause is not Cause.FILE:
            return
        missed.append(failure)
        written = db.execute("SELECT count(*) FROM holdfast.batch").fetchone()
        # The first time in the run that listed it, the second time as a batch that was planned.
        if len(missed) <= 2:
            assert written == (1,)
        if len(missed) == 2:
            (archive / "001.json").rename(events / "001.json")
        if len(missed) == 3:
            (events / "002.json").touch()
            order(events / "002.json", 2)

    play.options = {"max_files_per_trigger": 2}
    play.supervised(mend, select=archive_next)
    assert [failure.said.partition(". ")[0] for failure in missed] == [
        f"{events / name} is gone, and batch {batch} was planned to read it"
        for name, batch in (("001.json", 1), ("001.json", 1), ("002.json", 2))
    ]
    windows = db.execute("SELECT merchant_id, exposure_minor FROM holdfast.exposure_window")
    # Without the file in whose place an empty one was put, and with the one that came back.
    assert windows.fetchall() == [("m_1", 21)]
