"""The job reads Kafka topics of a real broker: the same decisions as from files, and no gap.

Real: Apache Kafka, Spark with its own connector, Postgres.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.input.formats import KeyRule
from holdfast.spark_app.input.kafka_options import connection
from holdfast.spark_app.input.sources import Kafka
from holdfast.spark_app.lifecycle.failure import QueryFailed
from tests.support.job.job_stream import Rows, lasting
from tests.support.job.jobs import Play, event, put
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka.server import KafkaServer

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("kafka_connector")]

DAY = (
    [event(f"e{n}", f"12:{n:02}", 3_000_000, f"m_{n % 3}") for n in range(14)],
    [event("late", "12:14:59", 1, "m_1"), event("e30", "12:20", -4_000_000, "m_1"), b"{"],
    [event("e40", "12:40", 1, "m_2")],
)
"""Three batches: a window with decisions, a correction with a bad line, and what closes all."""


def _play(
    spark: "SparkSession", dsn: str, folder: Path, kafka: "KafkaServer", **source: Any
) -> Play:
    """A job that reads topics alone."""
    topic = source.pop("topic")
    accept = source.pop("accept", False)
    connected = connection(kafka.bootstrap_servers, (), None, accept_data_loss=accept)
    options: Mapping[str, Any] = {
        "paths": (),
        "topics": (Kafka(topic, **source),),
        "connection": connected,
    }
    return Play(spark, dsn, folder, options)


def _planned(checkpoint: Path, batch: int) -> list[str]:
    """The end of a batch in each source, in Spark's own words."""
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]


def _plan(checkpoint: Path, batch: int) -> Any:
    return json.loads(_planned(checkpoint, batch)[0])


UNREAD = event("unread", "12:07", 1_000_000_000)
"""A record before the place where its topic begins."""

CLOSED = """
    SELECT to_char(window_end, 'HH24:MI'), exposure_minor FROM holdfast.exposure_window ORDER BY 1
"""

REFUSED = "SELECT reason, detail FROM holdfast.quarantine ORDER BY detail"


@pytest.fixture(scope="module")
def from_files(shared_play: Play) -> dict[str, Rows]:
    """What the job publishes of `DAY` in files."""
    shared_play.put(*DAY)
    shared_play.command()
    return _published(shared_play.dsn)


def _published(dsn: str) -> dict[str, Rows]:
    return lasting(dsn, "entries", "windows")


def test_topic_and_files_give_identical_output(
    world: World, spark: "SparkSession", shared_kafka: "KafkaServer", from_files: dict[str, Rows]
) -> None:
    topic = shared_kafka.make_topic(2)
    play = _play(spark, world.dsn, world.tmp_path, shared_kafka, topic=topic, key=KeyRule.IGNORED)
    for number, lines in enumerate(DAY):
        # The second partition is idle but for a tombstone, and holds nothing back.
        shared_kafka.produce(topic, lines, partition=0)
        if number == 1:
            shared_kafka.produce(topic, [None], partition=1)
        play.command()
    assert _published(world.dsn) == from_files
    assert any("payout_hold.block" in row for row in from_files["entries"])
    places = [(reason, detail.partition(":")[0]) for reason, detail in world.db.execute(REFUSED)]
    assert places == [
        ("malformed", f"{topic}, partition 0, offset 16"),
        ("malformed", f"{topic}, partition 1, offset 0"),
    ]

    # A restored checkpoint repeats the batches from the topic, and writes nothing new.
    checkpoint = world.tmp_path / "checkpoint"
    count = world.db.execute("SELECT count(*), max(batch_id) FROM holdfast.batch").fetchone()
    restored(Folder(str(checkpoint)), 1, world.dsn, dry_run=False)
    play.command()
    assert (
        world.db.execute("SELECT count(*), max(batch_id) FROM holdfast.batch").fetchone() == count
    )
    assert _published(world.dsn) == from_files
    # Without their records they are refused before anything runs.
    restored(Folder(str(checkpoint)), 1, world.dsn, dry_run=False)
    shared_kafka.delete_records(topic, 0, 18)
    with pytest.raises(CommandError, match="are gone, and were not read"):
        play.command()
    assert _published(world.dsn) == from_files


@pytest.mark.long
def test_offset_gap_and_recreated_topic_pass_only_with_consent(
    world: World,
    spark: "SparkSession",
    shared_kafka: "KafkaServer",
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = shared_kafka.make_topic(1)
    play = _play(spark, world.dsn, world.tmp_path, shared_kafka, topic=topic)
    accepting = _play(spark, world.dsn, world.tmp_path, shared_kafka, topic=topic, accept=True)
    shared_kafka.produce(topic, [event(f"a{n}", "12:01", 1) for n in range(3)])
    play.command()

    shared_kafka.produce(topic, [event(f"b{n}", "12:02", 1) for n in range(4)])
    shared_kafka.delete_records(topic, 0, 5)
    with pytest.raises(CommandError, match="the offsets 3 to 4 are gone"):
        play.command()
    accepting.command()
    assert "continuing after an offset gap" in capsys.readouterr().err
    newest = max(int(path.name) for path in (world.tmp_path / "checkpoint/offsets").glob("[0-9]*"))
    assert _plan(world.tmp_path / "checkpoint", newest) == {topic: {"0": 7}}

    # The new topic has more records than the old one had: by offsets alone nobody would notice.
    shared_kafka.delete_topic(topic)
    shared_kafka.make_topic(2, name=topic)
    shared_kafka.produce(topic, [event(f"c{n}", "12:03", 1) for n in range(9)])
    # Nor does a process that went over a gap go over another one when it restarts.
    for each in (play, accepting):
        with pytest.raises(CommandError, match="made again under its name"):
            each.command()
    _play(spark, world.dsn, world.tmp_path, shared_kafka, topic=topic, accept=True).command()
    # Partitions that are added are read from their first record.
    shared_kafka.add_partitions(topic, 3)
    shared_kafka.produce(topic, [event("d1", "12:30", 1)], partition=2)
    play.command()
    absorbed = "SELECT exposure_minor FROM holdfast.exposure_window ORDER BY revision DESC LIMIT 1"
    assert world.db.execute(absorbed).fetchone() == (3 + 2 + 9,)


@pytest.mark.long
def test_mixed_sources_start_as_told_and_continue_from_a_savepoint(
    world: World,
    spark: "SparkSession",
    shared_kafka: "KafkaServer",
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Its records are of 1970: a broker deletes what is older than a week.
    timed = shared_kafka.make_topic(2, settings={"retention.ms": "-1"})
    newest, events = shared_kafka.make_topic(), world.tmp_path / "e"
    family = [shared_kafka.make_topic(name=f"{newest}-1"), f"{newest}-2"]
    for partition in (0, 1):
        shared_kafka.produce(timed, [UNREAD], partition=partition, timestamp_ms=1_999)
    shared_kafka.produce(timed, [event("t1", "12:01", 1)], timestamp_ms=2_000)
    shared_kafka.produce(newest, [UNREAD])
    shared_kafka.produce(family[0], [event("p1", "12:02", 20)])
    # A pattern is for whole names.
    shared_kafka.produce(shared_kafka.make_topic(name=f"{newest}-1-dead"), [UNREAD])
    put(events, 0, [event("f1", "12:03", 300)])
    sources: dict[str, Any] = {
        "paths": (str(events),),
        "topics": (
            Kafka(timed, starting="1970-01-01T00:00:02.000Z"),
            Kafka(newest, starting="latest"),
            Kafka(f"{newest}-[0-9]", is_pattern=True),
        ),
    }
    play = _play(spark, world.dsn, world.tmp_path, shared_kafka, topic=timed)
    play.command(**sources)
    checkpoint = world.tmp_path / "checkpoint"
    assert [json.loads(line) for line in _planned(checkpoint, 0)[1:]] == [
        {timed: {"0": 2, "1": 1}},
        {newest: {"0": 1}},
        {family[0]: {"0": 1}},
    ]

    shared_kafka.make_topic(name=family[1])
    shared_kafka.produce(family[1], [event("p2", "12:04", 4_000)])
    shared_kafka.produce(newest, [event("n1", "12:05", 50_000)])
    shared_kafka.produce(timed, [event("t2", "12:06", 600_000)], partition=1)
    put(events, 1, [event("f2", "12:20", 7)])
    play.command(**sources)
    closed = [("12:15", 654_321)]
    assert world.db.execute(CLOSED).fetchall() == closed

    # Of an earlier batch: what followed it is read again from files and topics, as it was planned.
    play.save(str(checkpoint), str(world.tmp_path / "saved"), 0)
    shared_kafka.produce(family[1], [event("p3", "12:21", 80)])
    shared_kafka.produce(newest, [event("n2", "12:22", 900), event("n3", "12:40", 1)])
    moved = {"checkpoint": str(world.tmp_path / "new"), "savepoint": str(world.tmp_path / "saved")}
    capsys.readouterr()
    play.command(**sources, **moved, key_groups=7)
    assert "repeating batch 1 of " in capsys.readouterr().err
    assert world.db.execute(CLOSED).fetchall() == [*closed, ("12:30", 987)]
    assert world.db.execute("SELECT count(*) FROM holdfast.late_event").fetchone() == (0,)
    refused = {**sources, "topics": sources["topics"][:2]}
    with pytest.raises(CommandError, match=re.escape(f"--topic-pattern {newest}-[0-9] is missing")):
        play.command(**refused, **moved, key_groups=7)


def test_nothing_is_claimed_without_topic_or_broker(
    world: World, spark: "SparkSession", shared_kafka: "KafkaServer"
) -> None:
    play = _play(spark, world.dsn, world.tmp_path, shared_kafka, topic="nobody-made-it")
    with pytest.raises(CommandError, match=r"--topic-pattern \[ is not a regular expression"):
        play.command(topics=(Kafka("[", is_pattern=True),))
    with pytest.raises(QueryFailed, match=r"nobody-made-it: .* its name is unknown") as raised:
        play.command()
    assert raised.value.failure.permanent
    away = connection(
        "127.0.0.1:1",
        ("kafka.default.api.timeout.ms=2000", "kafka.request.timeout.ms=1000"),
        None,
        accept_data_loss=False,
    )
    with pytest.raises(QueryFailed, match=r"no broker at 127\.0\.0\.1:1 answers") as raised:
        play.command(connection=away)
    assert raised.value.failure.permanent
    assert not (world.tmp_path / "checkpoint").exists()
    assert world.db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
