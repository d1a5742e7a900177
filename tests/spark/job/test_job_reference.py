"""The whole job against a naive recomputation, over one generated stream in both file formats."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest

from holdfast.deploy.local.demo.reference import BatchResult, Event, Reference
from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.schema import TIMESTAMP
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.jobs import POLICY, Play, at, micros, order, put
from tests.support.job.outbox import contents
from tests.support.servers.databases import copy_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

pytestmark = pytest.mark.spark

FILES = 10
MERCHANTS = ["m_eur", *(f"m_{n}" for n in range(12))]
SETTINGS = Settings(late_cutoff_us=16 * 60_000_000)
"""A cutoff so long that some laggards still correct their window, and others are late."""


def _stream() -> list[list[Event]]:
    """Ten files, twelve minutes apart: amounts around the limit, repeats, laggards of all sizes."""
    draw = random.Random(482)  # noqa: S311 - the same stream in every run
    files: list[list[Event]] = []
    for number in range(FILES):
        start = micros(at("12:00")) + number * 12 * 60_000_000
        rows = []
        for i in range(150):
            merchant = draw.choice(MERCHANTS)
            behind = draw.choice([0, 0, 0, 1, 10, 18, 40]) * 60_000_000
            rows.append(
                Event(
                    f"e{number}-{i}",
                    merchant,
                    draw.choice(["payout_submitted", "payout_failed"]),
                    draw.choice([-2_000_000, -500_000, 300_000, 900_000, 2_500_000]),
                    "EUR" if merchant == "m_eur" else "USD",
                    start + draw.randrange(12 * 60_000_000) - behind,
                )
            )
        before = [row for earlier in files for row in earlier]
        rows += draw.sample(rows, 8) + draw.sample(before, min(len(before), 8))
        draw.shuffle(rows)
        files.append(rows)
    return files


def _watermarks(files: list[list[Event]]) -> list[int | None]:
    """W of each batch: the newest time of earlier ones, less the delay, in whole milliseconds."""
    found: list[int | None] = [None]
    newest = 0
    for rows in files:
        newest = max(newest, *(row.occurred_at_us for row in rows))
        found.append((newest // 1000 * 1000) - SETTINGS.watermark_delay_us)
    return found


@dataclass
class Run:
    """One run of the job over the stream, and what it should have done, batch by batch."""

    play: Play
    progress: "list[StreamingQueryProgress]"
    expected: list[BatchResult]
    watermarks: list[int | None]


@pytest.fixture(scope="module")
def run(
    spark: "SparkSession",
    server_dsn: str,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("reference")
    (folder / "policy.toml").write_text(POLICY)
    reference = Reference(folder / "policy.toml", late_cutoff_us=SETTINGS.late_cutoff_us)
    files = _stream()
    watermarks = _watermarks(files)
    # After the last file comes the batch without rows in which its watermark takes effect.
    expected = [
        reference.batch(rows, watermark)
        for rows, watermark in zip([*files, []], watermarks, strict=True)
    ]
    for number, rows in enumerate(files):
        put(folder / "events", number, [_json(row) for row in rows])
    with copy_of(server_dsn, template_database) as dsn:
        play = Play(spark, dsn, folder, {"settings": SETTINGS})
        yield Run(play, play.run(), expected, watermarks)


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


def _json(event: Event) -> bytes:
    return json.dumps(
        _row(event) | {"occurred_at": rfc3339_from_micros(event.occurred_at_us)}
    ).encode()


def test_each_batch_ran_at_the_watermark_of_the_batches_before_it(run: Run) -> None:
    shown = [progress.eventTime["watermark"] for progress in run.progress]
    assert shown == [
        "1970-01-01T00:00:00.000Z" if w is None else _milliseconds(w) for w in run.watermarks
    ]


def _milliseconds(moment_us: int) -> str:
    seconds, rest = divmod(moment_us, 1_000_000)
    return f"{rfc3339_from_micros(seconds * 1_000_000)[:-1]}.{rest // 1000:03}Z"


def test_spark_itself_dropped_no_row(run: Run) -> None:
    dropped = [p.stateOperators[0].numRowsDroppedByWatermark for p in run.progress]
    assert dropped == [0] * (FILES + 1)
    assert any(batch.late for batch in run.expected)


def test_decisions_are_those_of_the_reference(run: Run, db: psycopg.Connection) -> None:
    expected = [
        (decision.merchant_id, f"payout_hold.{decision.action}", _data(decision._asdict()))
        for batch in run.expected
        for decision in batch.decisions
    ]
    found = db.execute("""
        SELECT name, type, convert_from(body, 'UTF8')::jsonb -> 'data'
        FROM holdfast.entry JOIN holdfast.subject ON subject.id = entry.subject_id
        ORDER BY name, sequence
    """).fetchall()
    assert len(found) >= 30
    assert {type_ for _, type_, _ in found} == {"payout_hold.block", "payout_hold.release"}
    assert found == sorted(expected, key=lambda decision: decision[0])


def _data(decision: dict[str, Any]) -> dict[str, Any]:
    del decision["ordinal"]
    for name in ("window_start", "window_end"):
        decision[name] = rfc3339_from_micros(decision[name])
    return decision


def test_windows_are_those_of_the_reference(run: Run, db: psycopg.Connection) -> None:
    expected = {
        (w.merchant_id, w.window_end): (w.window_start, w.revision, w.exposure_minor, w.currency)
        for batch in run.expected
        for w in batch.windows
    }
    found = db.execute("""
        SELECT merchant_id, window_end, window_start, revision, exposure_minor, currency
        FROM holdfast.exposure_window
    """).fetchall()
    assert {
        (merchant, micros(end)): (micros(start), *rest) for merchant, end, start, *rest in found
    } == expected
    assert any(revision > 1 for _, revision, _, _ in expected.values())


@pytest.mark.guarantee(7)
def test_late_events_are_those_of_the_reference(run: Run, db: psycopg.Connection) -> None:
    expected = Counter(tuple(late) for batch in run.expected for late in batch.late)
    assert {reason for reason, *_ in expected} == {"late", "duplicate"}
    found = db.execute("""
        SELECT reason::text, event_id, merchant_id, type, amount_minor, currency,
            occurred_at, watermark
        FROM holdfast.late_event
    """).fetchall()
    rows = [
        (*rest, micros(occurred), None if watermark is None else micros(watermark))
        for *rest, occurred, watermark in found
    ]
    assert Counter(rows) == expected


def test_parquet_files_give_what_json_files_give(
    run: Run, db: psycopg.Connection, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    for number, rows in enumerate(_stream()):
        table = pa.Table.from_pylist([_row(row) for row in rows]).append_column(
            "occurred_at", pa.array([row.occurred_at_us for row in rows], TIMESTAMP)
        )
        path = tmp_path / "events" / f"{number:03}.parquet"
        pyarrow.parquet.write_table(table, path)
        order(path, number)
    Play(run.play.spark, dsn, tmp_path, run.play.options).run(format=Format.PARQUET)
    with psycopg.connect(dsn) as other:
        assert _comparable(other) == _comparable(db)


def _comparable(db: psycopg.Connection) -> dict[str, list[Any]]:
    """What was written, without the identity of the checkpoint that wrote it."""
    found: dict[str, list[Any]] = {
        name: rows for name, rows in contents(db).items() if name not in {"stream", "batch"}
    }
    found["batch"] = db.execute("""
        SELECT batch_id, row_count, entry_count, digest FROM holdfast.batch ORDER BY batch_id
    """).fetchall()
    return found


CRASHES = (5, 7)
"""The files at which a run dies: the batch before is the last one of its checkpoint."""


def test_a_stream_that_is_rescaled_twice_gives_what_the_undisturbed_one_gives(
    run: Run, db: psycopg.Connection, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = CRASHES
    play = Play(run.play.spark, dsn, run.play.folder, run.play.options)
    places = [str(tmp_path / name) for name in ("four", "sixteen", "seven")]
    _crash(play, monkeypatch, first, checkpoint=places[0])
    one = play.save(places[0], str(tmp_path / "one"))
    sixteen = {"checkpoint": places[1], "savepoint": str(tmp_path / "one")}
    sixteen |= {"key_groups": 16, "partitions": 3}
    _crash(play, monkeypatch, second - first, **sixteen)
    two = play.save(places[1], str(tmp_path / "two"))
    seven = {"checkpoint": places[2], "savepoint": str(tmp_path / "two")}
    play.command(**seven, key_groups=7, partitions=1)

    assert (one.batch_id, two.batch_id) == (first - 1, second - first)
    _require_unsettled(run, first)
    _require_unsettled(run, second)
    assert _corrected(run, first)
    with psycopg.connect(dsn, autocommit=True) as other:
        assert _lasting(other) == _lasting(db)
        queries = other.execute(
            """
            SELECT count(*) FROM holdfast.batch WHERE row_count > 0 OR run_id <> %s
            GROUP BY query_id ORDER BY min(batch_no)""",
            [UUID(int=0)],
        ).fetchall()
        assert queries == [(first,), (second - first,), (FILES + 1 - second,)]


def _crash(play: Play, monkeypatch: pytest.MonkeyPatch, passed: int, **job: Any) -> None:
    """Run until the sink has written so many batches, and dies in the next one."""
    with monkeypatch.context() as armed:
        armed.setattr("holdfast.sink.contract.failpoints._armed", f"S2=raise@{passed + 1}")
        armed.setattr("holdfast.sink.contract.failpoints._passed", {})
        with pytest.raises(QueryFailed, match="FailpointHit: S2"):
            play.command(**job)


def _require_unsettled(run: Run, place: int) -> None:
    """A hold, and a repeat of an absorbed id."""
    before, after = run.expected[:place], run.expected[place:]
    known = {row.event_id for rows in _stream()[:place] for row in rows}
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


def _lasting(db: psycopg.Connection) -> dict[str, list[Any]]:
    """What was written, whichever checkpoint wrote it; every batch by its digest."""
    found: dict[str, list[Any]] = {
        name: rows
        for name, rows in contents(db).items()
        if name in {"subject", "transition", "quarantine"}
    }
    return found | {
        "batches": db.execute(
            """
            SELECT row_count, entry_count, duplicate_count, suppressed_count, digest
            FROM holdfast.batch WHERE run_id <> %s ORDER BY batch_no""",
            [UUID(int=0)],
        ).fetchall(),
        "entries": db.execute("""
            SELECT name, sequence, key, type, occurred_at, priority, convert_from(body, 'UTF8')
            FROM holdfast.entry JOIN holdfast.subject ON subject.id = subject_id
            ORDER BY 1, 2""").fetchall(),
        "keys": db.execute("SELECT key, content FROM holdfast.entry_key ORDER BY 1").fetchall(),
        "windows": db.execute("""
            SELECT merchant_id, window_end, revision, exposure_minor, policy_version
            FROM holdfast.exposure_window ORDER BY 1, 2""").fetchall(),
        "late": db.execute("""
            SELECT reason::text, event_id, merchant_id, amount_minor, occurred_at, watermark
            FROM holdfast.late_event ORDER BY 1, 2, 3, 4, 5, 6""").fetchall(),
    }


def test_a_batch_that_spark_forgot_comes_again_and_writes_nothing(
    run: Run, db: psycopg.Connection, tmp_path: Path
) -> None:
    """As after a crash between the sink's commit and Spark's: `commits/N` is missing."""
    before = contents(db), db.execute("SELECT count(*) FROM holdfast.late_event").fetchone()
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(run.play.folder / "checkpoint", checkpoint)
    for name in (str(FILES), f".{FILES}.crc"):
        (checkpoint / "commits" / name).unlink()
    progress = run.play.run(checkpoint=str(checkpoint))
    assert [p.batchId for p in progress] == [FILES]
    assert (
        contents(db),
        db.execute("SELECT count(*) FROM holdfast.late_event").fetchone(),
    ) == before
