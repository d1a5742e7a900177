"""The broker that tests and demo run: what it keeps when it is killed, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException

from holdfast.deploy.local.demo.topic_scenario import Producer
from holdfast.deploy.local.kafka import topics
from holdfast.deploy.local.kafka.broker import Broker, client_settings
from holdfast.sink.contract.exits import CommandError
from tests.support.command import holdfast
from tests.support.kafka.fixtures import staged_or_skip
from tests.support.kafka.server import KafkaServer
from tests.support.processes import java_below
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest


def _values(kafka: KafkaServer, topic: str) -> list[str]:
    return [(message.value() or b"").decode() for message in kafka.read(topic)]


def test_killed_broker_keeps_its_port_and_acknowledged_records(kafka: KafkaServer) -> None:
    topic = kafka.make_topic()
    kafka.produce(topic, ["first", "second"])
    address, pid = kafka.bootstrap_servers, kafka.broker.pid
    kafka.broker.kill()
    assert kafka.broker.pid is None
    with pytest.raises(KafkaException):
        kafka.admin.list_topics(timeout=0.5)
    kafka.broker.start()
    assert (kafka.bootstrap_servers, kafka.broker.pid != pid) == (address, True)
    kafka.produce(topic, ["third"])
    assert _values(kafka, topic) == ["first", "second", "third"]
    kafka.broker.stop()
    assert kafka.broker.pid is None
    kafka.broker.start()
    assert _values(kafka, topic) == ["first", "second", "third"]


@pytest.mark.long
def test_producer_writes_each_line_once_across_a_broker_kill(kafka: KafkaServer) -> None:
    topic = kafka.make_topic(3)
    lines = [f'{{"event_id":"e{n}","merchant_id":"m_{n % 50}"}}' for n in range(3000)]
    with Producer(kafka.bootstrap_servers, topic, 3, lines) as producer:
        producer.allow(1500)
        eventually(lambda: producer.written >= 500)
        kafka.broker.kill()
        producer.allow(len(lines))
        kafka.broker.start()
        eventually(producer.done, 120)
    values = _values(kafka, topic)
    assert sorted(values) == sorted(lines)
    # Those of a merchant are in one partition, in their order.
    assert [line for line in values if '"m_7"' in line] == [
        line for line in lines if '"m_7"' in line
    ]


@pytest.mark.long
def test_local_kafka_writes_files_and_leaves_nothing_behind(tmp_path: Path) -> None:
    jars = staged_or_skip("broker")
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast" / "kafka").symlink_to(jars.parent)
    lines = [f'{{"event_id":"e{n}","merchant_id":"m_{n % 5}"}}' for n in range(40)]
    (tmp_path / "1.jsonl").write_text("\n".join([*lines, "", "no event"]))
    command = [
        sys.executable,
        "-m",
        "holdfast.dispatcher.cli.main",
        "local",
        "kafka",
        "--port",
        "0",
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*command, "--write", "1.jsonl"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stdout
            address = running.stdout.readline().strip()
            [broker] = psutil.Process(running.pid).children()
            rows = topics.read(address, "payments")
            taken = holdfast("local", "kafka", "--port", address.rpartition(":")[2])
            running.terminate()
            assert running.wait(60) == 0
        finally:
            running.kill()
    assert sorted(rows) == [0, 1, 2]
    values = [(message.value() or b"").decode() for part in rows.values() for message in part]
    assert sorted(values) == sorted([*lines, "no event"])
    assert taken.returncode == 1
    assert "Nothing was started" in taken.stderr
    assert not broker.is_running()
    assert not list(tmp_path.glob("holdfast-kafka-*"))


@pytest.mark.long
def test_topics_are_not_made_by_those_who_ask_for_one(shared_kafka: KafkaServer) -> None:
    assert shared_kafka.admin.list_topics("absent", timeout=10).topics["absent"].error
    assert "absent" not in shared_kafka.admin.list_topics(timeout=10).topics


@pytest.mark.long
def test_partitions_are_written_and_read_apart(shared_kafka: KafkaServer) -> None:
    topic = shared_kafka.make_topic(2)
    shared_kafka.produce(topic, ["a", "b"], partition=1, key="k", timestamp_ms=1_000)
    assert shared_kafka.end_offsets(topic) == {0: 0, 1: 2}
    shared_kafka.add_partitions(topic, 3)
    shared_kafka.delete_records(topic, 1, 1)
    (kept,) = shared_kafka.read(topic)
    assert (kept.partition(), kept.offset(), kept.key(), kept.value()) == (1, 1, b"k", b"b")
    assert kept.timestamp()[1] == 1_000


def test_failed_broker_start_reports_why_and_leaves_no_process(
    shared_kafka: KafkaServer, tmp_path: Path
) -> None:
    broker = Broker(tmp_path / "b", shared_kafka.broker.jars, settings={"node.id": "none"})
    with pytest.raises(CommandError, match=r"cannot be prepared .* Invalid value none") as caught:
        broker.start()
    assert "StorageTool" not in str(caught.value)
    assert broker.pid is None
    broker = Broker(tmp_path / "c", shared_kafka.broker.jars, java_options=("-Xmx1m",))
    with pytest.raises(CommandError, match=r"Kafka broker|Too small"):
        broker.start()
    assert [child.pid for child in java_below()] == [shared_kafka.broker.pid]


def test_client_without_a_broker_writes_nothing_to_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from confluent_kafka.admin import AdminClient

    with pytest.raises(KafkaException):
        AdminClient(client_settings("127.0.0.1:1")).list_topics(timeout=0.5)
    assert capfd.readouterr().err == ""
