"""The whole job against a naive recomputation, over one generated stream in both file formats."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest

from holdfast.deploy.local.demo.reference import BatchResult, Event
from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.schema import TIMESTAMP
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.job_stream import (
    SETTINGS,
    Rows,
    Stream,
    contents,
    lasting,
    published,
    required,
    stream,
)
from tests.support.job.jobs import Play, armed, forget_commit, order
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

FILES = 10


@dataclass
class Run:
    """One run of the job over the stream, and what it should have done, batch by batch."""

    play: Play
    progress: "list[StreamingQueryProgress]"
    made: Stream
    expected: list[BatchResult]


@pytest.fixture(scope="module")
def run(shared_play: Play) -> Run:
    made = stream(7, FILES, minutes=12)
    made.refused = [[] for _ in made.files]  # Parquet has no lines that are no events
    made.put(shared_play.folder / "events")
    # After the last file comes the batch without rows in which its watermark takes effect.
    expected = made.expected(shared_play.folder / "policy.toml")
    play = replace(shared_play, options={"settings": SETTINGS})
    return Run(play, play.run(), made, expected)


@pytest.fixture
def db(run: Run) -> Iterator[psycopg.Connection]:
    with psycopg.connect(run.play.dsn, autocommit=True) as connection:
        yield connection


def _row(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "merchant_id": event.merchant_id,
        "type": event.type,
        "amount_minor": event.amount_minor,
        "currency": event.currency,
    }


def test_each_batch_ran_at_the_watermark_of_the_batches_before_it(run: Run) -> None:
    shown = [progress.eventTime["watermark"] for progress in run.progress]
    assert shown == [
        "1970-01-01T00:00:00.000Z" if w is None else _milliseconds(w) for w in run.made.watermarks()
    ]


def _milliseconds(moment_us: int) -> str:
    seconds, rest = divmod(moment_us, 1_000_000)
    return f"{rfc3339_from_micros(seconds * 1_000_000)[:-1]}.{rest // 1000:03}Z"


def test_spark_itself_dropped_no_row(run: Run) -> None:
    dropped = [p.stateOperators[0].numRowsDroppedByWatermark for p in run.progress]
    assert dropped == [0] * (FILES + 1)
    assert any(batch.late for batch in run.expected)


@pytest.mark.guarantee(7)
def test_published_is_what_the_reference_publishes(run: Run) -> None:
    decisions, windows, late = published(run.play.dsn)
    assert (decisions, windows, late) == required(run.expected)
    assert len(decisions) >= 30
    assert {type_ for _, type_, _ in decisions} == {"payout_hold.block", "payout_hold.release"}
    assert any(revision > 1 for _, _, _, revision, *_ in windows)
    assert {reason for reason, *_ in late} == {"late", "duplicate", "future_dated"}


@pytest.mark.rest
def test_parquet_files_give_what_json_files_give(run: Run, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    for number, rows in enumerate(run.made.files):
        table = pa.Table.from_pylist([_row(row) for row in rows]).append_column(
            "occurred_at", pa.array([row.occurred_at_us for row in rows], TIMESTAMP)
        )
        path = tmp_path / "events" / f"{number:03}.parquet"
        pyarrow.parquet.write_table(table, path)
        order(path, number)
    Play(run.play.spark, dsn, tmp_path, run.play.options).run(format=Format.PARQUET)
    assert lasting(dsn) == lasting(run.play.dsn)
    assert _digests(dsn) == _digests(run.play.dsn)


CRASHES = (5, 7)
"""The files at which a run dies: the batch before is the last one of its checkpoint."""


@pytest.mark.long
def test_stream_rescaled_twice_equals_an_undisturbed_one(world: World, run: Run) -> None:
    first, second = CRASHES
    play = Play(run.play.spark, world.dsn, run.play.folder, run.play.options)
    places = [str(world.tmp_path / name) for name in ("four", "sixteen", "seven")]
    _crash(play, first, checkpoint=places[0])
    one = play.save(places[0], str(world.tmp_path / "one"))
    sixteen = {"checkpoint": places[1], "savepoint": str(world.tmp_path / "one")}
    sixteen |= {"key_groups": 16, "partitions": 3}
    _crash(play, second - first, **sixteen)
    two = play.save(places[1], str(world.tmp_path / "two"))
    seven = {"checkpoint": places[2], "savepoint": str(world.tmp_path / "two")}
    play.command(**seven, key_groups=7, partitions=1)

    assert (one.batch_id, two.batch_id) == (first - 1, second - first)
    _require_unsettled(run, first)
    _require_unsettled(run, second)
    assert _corrected(run, first)
    assert lasting(world.dsn) == lasting(run.play.dsn)
    assert _digests(world.dsn) == _digests(run.play.dsn)
    with psycopg.connect(world.dsn) as other:
        queries = other.execute(
            """
            SELECT count(*) FROM holdfast.batch WHERE row_count > 0 OR run_id <> %s
            GROUP BY query_id ORDER BY min(batch_no)""",
            [UUID(int=0)],
        ).fetchall()
        assert queries == [(first,), (second - first,), (FILES + 1 - second,)]


def _crash(play: Play, passed: int, **job: Any) -> None:
    """Run until the sink has written so many batches, and dies in the next one."""
    with armed(f"S2=raise@{passed + 1}"), pytest.raises(QueryFailed, match="FailpointHit: S2"):
        play.command(**job)


def _require_unsettled(run: Run, place: int) -> None:
    """A hold, and a repeat of an absorbed id."""
    before, after = run.expected[:place], run.expected[place:]
    known = {row.event_id for rows in run.made.files[:place] for row in rows}
    assert known & {late.event_id for batch in after for late in batch.late}
    latest = {d.merchant_id: d.action for batch in before for d in batch.decisions}
    assert "block" in latest.values()


def _corrected(run: Run, place: int) -> set[tuple[str, int]]:
    """The windows that were emitted before a batch, and emitted again from it on."""
    before, after = (
        {(w.merchant_id, w.window_end) for batch in batches for w in batch.windows}
        for batches in (run.expected[:place], run.expected[place:])
    )
    return before & after


def _digests(dsn: str) -> Rows:
    """Every batch but those of savepoints, whichever checkpoint wrote it."""
    with psycopg.connect(dsn) as db:
        return db.execute(
            """
            SELECT row_count, entry_count, duplicate_count, suppressed_count, digest
            FROM holdfast.batch WHERE run_id <> %s ORDER BY batch_no""",
            [UUID(int=0)],
        ).fetchall()


def test_batch_repeated_by_spark_writes_nothing(world: World, run: Run) -> None:
    """As after a crash between the sink's commit and Spark's: `commits/N` is missing."""
    before = (
        contents(world.db),
        world.db.execute("SELECT count(*) FROM holdfast.late_event").fetchone(),
    )
    checkpoint = world.tmp_path / "checkpoint"
    shutil.copytree(run.play.checkpoint, checkpoint)
    forget_commit(checkpoint, FILES)
    progress = run.play.run(checkpoint=str(checkpoint))
    assert [p.batchId for p in progress] == [FILES]
    assert (
        contents(world.db),
        world.db.execute("SELECT count(*) FROM holdfast.late_event").fetchone(),
    ) == before
