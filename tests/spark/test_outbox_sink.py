"""`OutboxSink` under Spark itself: a file a batch, real checkpoints, a real outbox."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import OutboxSink, Replayed, Written
from holdfast.sink.contract.checkpoint import MANAGER_CLASS, MANAGER_SETTING, manager_jar
from holdfast.sink.contract.source_offsets import without_files
from holdfast.sink.errors import (
    CheckpointReplaced,
    LedgerBehind,
    NotStreaming,
    UnadoptedCheckpoint,
    UnsafeCheckpoint,
)
from holdfast.sink.foreach_batch import WritePath
from holdfast.sink.session import UNKNOWN_BYTES, Identity, plan_bytes
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.job.job_stream import contents, sequences
from tests.support.job.jobs import commits, forget_commit
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

EVENTS = "merchant_id string, action string, window_end timestamp, exposure_minor long"

Play = Callable[..., "StreamingQuery"]


def _decisions(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

    type_ = F.concat(F.lit("payout_hold."), "action")
    window_end = F.date_format("window_end", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return events.select(
        F.col("merchant_id").alias("subject"),
        type_.alias("type"),
        F.array(F.lit("payout-hold/v1"), "merchant_id", window_end, "action", F.lit("1")).alias(
            "key"
        ),
        F.col("window_end").alias("occurred_at"),
        F.struct("merchant_id", "action", "window_end", "exposure_minor").alias("data"),
        F.when(F.col("action") == "block", 0).otherwise(1).cast("smallint").alias("priority"),
    )


@pytest.fixture
def play(spark: "SparkSession", tmp_path: Path) -> Iterator[Play]:
    """Run a query over the files that are there, from a checkpoint, until it has done them."""
    started: list[StreamingQuery] = []

    def run(sink: Callable[["DataFrame", int], None], checkpoint: str = "one") -> "StreamingQuery":
        source = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        query = (
            _decisions(source.json(str(tmp_path / "events")))
            .writeStream.option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(sink)
            .start()
        )
        started.append(query)
        query.processAllAvailable()
        return query

    yield run
    for query in started:
        query.stop()


def _file(folder: Path, number: int, *events: tuple[str, str, str, int]) -> None:
    names = ("merchant_id", "action", "window_end", "exposure_minor")
    path = folder / "events" / f"{number:03}.json"
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps(dict(zip(names, event, strict=True))) for event in events]
    path.write_text("\n".join(lines))
    # The source takes files in the order of their times.
    os.utime(path, (1_793_620_000 + number,) * 2)


def _founding_example(folder: Path) -> None:
    _file(folder, 0, ("m_482", "block", "2026-11-02T12:15:00Z", 8_500_000))
    _file(folder, 1, ("m_482", "release", "2026-11-02T12:30:00Z", 2_200_000))


def test_each_micro_batch_is_written_with_sparks_own_ids(
    world: World, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    _founding_example(world.tmp_path)
    caplog.set_level(logging.INFO, "holdfast.sink")
    also_saw: list[int] = []
    checkpoint = world.tmp_path / "one"
    sink = OutboxSink(
        world.dsn,
        stream="payouts",
        checkpoint=checkpoint.as_uri(),
        also=lambda _connection, rows: also_saw.append(rows.num_rows),
    )
    query = play(sink)

    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    rows = world.db.execute(
        "SELECT query_id::text, batch_id, run_id::text, epoch, entry_count, source_offsets"
        " FROM holdfast.batch ORDER BY batch_id"
    ).fetchall()
    assert [row[:5] for row in rows] == [(query_id, n, query.runId, 1, 1) for n in range(2)]
    for n, row in enumerate(rows):
        offsets, files = without_files(row[5])
        assert offsets == (checkpoint / "offsets" / str(n)).read_text()
        assert [Path(file["path"]).name for file in files[0]] == [f"{n:03}.json"]
    assert query.id == query_id
    bodies: list[dict[str, Any]] = [
        json.loads(body)
        for (body,) in world.db.execute(
            "SELECT convert_from(body, 'UTF8') FROM holdfast.entry ORDER BY sequence"
        )
    ]
    assert [(body["type"], body["sequence"]) for body in bodies] == [(BLOCK, 1), (RELEASE, 2)]
    assert bodies[0]["timestamp"] == bodies[0]["data"]["window_end"] == "2026-11-02T12:15:00Z"
    assert also_saw == [1, 1]
    assert isinstance(sink.last, Written)
    assert "stream=payouts batch=1 written rows=1 entries=1" in caplog.text
    sink.close()


@pytest.mark.guarantee(3)
def test_new_checkpoint_ends_the_query_until_it_is_adopted(world: World, play: Play) -> None:
    from pyspark.errors import StreamingQueryException

    _founding_example(world.tmp_path)
    sink = OutboxSink(world.dsn, stream="payouts")
    play(sink)
    before = contents(world.db)["entry"]

    with pytest.raises(StreamingQueryException, match="UnadoptedCheckpoint") as raised:
        play(sink, "two")
    new_id = json.loads((world.tmp_path / "two" / "metadata").read_text())["id"]
    command = f"holdfast stream adopt payouts --query-id {new_id} --force --reason TEXT"
    assert command in str(raised.value)
    assert isinstance(sink.failure, UnadoptedCheckpoint)

    world.db.execute("UPDATE holdfast.stream SET query_id = %s, adopted_at = now()", [new_id])
    play(sink, "two")
    assert sink.failure is None
    assert sink.last is not None
    assert sink.last.counts.duplicates == 1
    assert contents(world.db)["entry"] == before
    assert sequences(world.db, "m_482") == [1, 2]
    sink.close()


def test_job_is_refused_a_database_or_stream_without_its_batches(
    world: World, play: Play, make_database: Callable[[str | None], str], template_database: str
) -> None:
    from pyspark.errors import StreamingQueryException

    _founding_example(world.tmp_path)
    checkpoint = world.tmp_path / "one"
    sink = OutboxSink(world.dsn, stream="payouts", checkpoint=checkpoint, suppress_repeats=True)
    play(sink)
    sink.close()
    _file(world.tmp_path, 2, ("m_482", "release", "2026-11-02T12:45:00Z", 2_100_000))
    empty = make_database(template_database)
    refused = [
        (OutboxSink(empty, stream="payouts", checkpoint=checkpoint), LedgerBehind),
        (OutboxSink(empty, stream="payouts"), LedgerBehind),
        (OutboxSink(world.dsn, stream="renamed", checkpoint=checkpoint), UnadoptedCheckpoint),
    ]
    for each, error in refused:
        with pytest.raises(StreamingQueryException, match=f"{error.__name__}.*Nothing was written"):
            play(each)
        assert isinstance(each.failure, error)
        each.close()
    with psycopg.connect(empty) as connection:
        assert contents(connection)["batch"] == []
    again = OutboxSink(world.dsn, stream="payouts", checkpoint=checkpoint, suppress_repeats=True)
    play(again)
    assert again.last is not None
    assert (again.last.batch_id, again.last.counts.suppressed) == (2, 1)
    again.close()


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("path", ["auto", "driver", "staged"])
def test_every_path_leaves_the_same_bodies_and_finds_a_replay(
    world: World, play: Play, path: WritePath
) -> None:
    _founding_example(world.tmp_path)
    first = OutboxSink(world.dsn, stream="payouts", path=path)
    play(first).stop()
    first.close()
    before = contents(world.db)
    bodies = [json.loads(row[-1]) for row in before["entry"]]
    assert [(body["type"], body["sequence"]) for body in bodies] == [(BLOCK, 1), (RELEASE, 2)]

    forget_commit(world.tmp_path / "one", 1)
    second = OutboxSink(world.dsn, stream="payouts", path=path)
    play(second)
    assert isinstance(second.last, Replayed)
    assert commits(world.tmp_path / "one") == [0, 1]
    assert contents(world.db) == before
    second.close()


def test_auto_stages_a_batch_whose_files_are_large(
    world: World, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    _file(world.tmp_path, 0, ("m_482", "block", "2026-11-02T12:15:00Z", 1))
    _file(world.tmp_path, 1, *((f"m_{n}", "block", "2026-11-02T12:30:00Z", n) for n in range(100)))
    monkeypatch.setattr("holdfast.sink.foreach_batch.STAGED_BYTES", 5_000)
    sink = OutboxSink(world.dsn, stream="payouts")
    staged: list[int] = []
    really = sink.apply_staged

    def note(schema: pa.Schema, run_all: Any, identity: Identity) -> Written | Replayed:
        staged.append(identity.batch_id)
        return really(schema, run_all, identity)

    monkeypatch.setattr(sink, "apply_staged", note)
    play(sink)
    assert staged == [1]
    assert [row[3] for row in contents(world.db)["batch"]] == [1, 100]
    sink.close()


@pytest.mark.parametrize(
    ("name", "at", "then"),
    [
        # Batch 0 has file 0; a plan of batch 1, which is to read file 1, is put over by another.
        ("sources/0/1", 1, 1),
        ("offsets/1", 1, 1),
        # One that was written already is noticed with the next batch.
        ("sources/0/0", 0, 1),
        ("offsets/0", 0, 1),
    ],
)
def test_plan_that_another_driver_has_replaced_ends_the_run_by_name(
    world: World, play: Play, name: str, at: int, then: int
) -> None:
    from pyspark.errors import StreamingQueryException

    for number in range(4):
        end = f"2026-11-02T1{number}:15:00Z"
        _file(world.tmp_path, number, (f"m_{number}", "block", end, 8_500_000))
    checkpoint = world.tmp_path / "one"
    sink = OutboxSink(world.dsn, stream="payouts", checkpoint=checkpoint)

    def replaced(df: "DataFrame", batch_id: int) -> None:
        if batch_id == at and at == then:
            replace()
        sink(df, batch_id)
        if batch_id == at:
            replace()

    def replace() -> None:
        """As a rename that comes late does it; the file is of a driver that took other files."""
        file = checkpoint / name
        text = file.read_text()
        other = text.replace(f"00{at}.json", "003.json").replace('"logOffset":', '"logOffset":1')
        assert other != text
        (file.parent / f".{file.name}.crc").unlink()
        file.write_text(other)

    try:
        with pytest.raises(StreamingQueryException, match="CheckpointReplaced"):
            play(replaced)
        assert isinstance(sink.failure, CheckpointReplaced)
        assert "not what this driver has planned" in str(sink.failure)
    finally:
        sink.close()
    assert world.value("SELECT count(*) FROM holdfast.batch") == then


def test_source_that_does_not_know_its_size_is_known_by_that(
    spark: "SparkSession", tmp_path: Path
) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    sizes: list[int] = []
    for rows in (source, source.selectExpr("struct(value, value) AS data", "'a' AS type")):
        query = (
            rows.writeStream.trigger(once=True)
            .option("checkpointLocation", str(tmp_path / str(len(sizes))))
            .foreachBatch(lambda df, _: sizes.append(plan_bytes(df)))
            .start()
        )
        query.awaitTermination()
    assert len(sizes) == 2
    assert min(sizes) >= UNKNOWN_BYTES


def test_sink_refuses_a_dataframe_outside_a_stream(spark: "SparkSession", dsn: str) -> None:
    with pytest.raises(NotStreaming, match="foreachBatch"):
        OutboxSink(dsn, stream="payouts")(spark.range(1), 0)


def test_path_that_spark_has_on_an_object_store_is_refused(
    spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    sink = OutboxSink("postgresql://nobody@127.0.0.1:1/nothing", stream="payouts", checkpoint="/a")
    try:
        for scheme in ("oss", "s3a", "viewed"):
            # Any class that knows its URI: nothing is read.
            settings.set(f"fs.{scheme}.impl", "org.apache.hadoop.fs.http.HttpFileSystem")
        settings.set("fs.defaultFS", "oss://bucket")
        with pytest.raises(UnsafeCheckpoint, match="oss://bucket/a is on an object store"):
            sink.use_session(spark)
        settings.set("fs.defaultFS", "s3a://bucket")
        with pytest.raises(UnsafeCheckpoint, match=r"s3a://bucket/a .* by renames") as raised:
            sink.use_session(spark)
        assert f"--jars {manager_jar()} --conf {MANAGER_SETTING}={MANAGER_CLASS}" in str(
            raised.value
        )
        settings.set("fs.defaultFS", "viewed://host")
        sink.use_session(spark)
        assert "viewed://host/a: a checkpoint there was not tried" in caplog.text
    finally:
        settings.set("fs.defaultFS", before)
