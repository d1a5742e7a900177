"""The job on Avro topics of a real broker: the same decisions as from JSON, and what is refused.

Real: Kafka, Spark, Postgres, an HTTP registry.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.input.avro import FRAME
from tests.support.job.jobs import at, event, micros
from tests.support.kafka.fixtures import staged_or_skip
from tests.support.kafka.job import RegistryServer, registry_server, run_to_end
from tests.support.kafka.server import KafkaServer
from tests.support.servers.databases import copy_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCHEMA = {
    "type": "record",
    "name": "Event",
    "namespace": "com.example",
    "fields": [
        {"name": "source", "type": ["null", "string"], "default": None},
        {"name": "event_id", "type": "string"},
        {"name": "merchant_id", "type": "string"},
        {"name": "type", "type": "string"},
        {"name": "amount_minor", "type": ["null", "long"]},
        {"name": "currency", "type": "string"},
        {"name": "occurred_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
CHANGES = [
    ("e1", "12:01", 6_000_000, "m_1"),
    ("e2", "12:02", 4_000_000, "m_2"),
    ("e3", "12:20", -2_000_000, "m_1"),
    ("e4", "12:21", None, "m_2"),
    ("e5", "12:50", 1, "m_3"),
    ("e6", "13:10", 1, "m_3"),
]
SECRETS = {"HOLDFAST_SECRET_REGISTRY": "reader:sesame"}
LINES = [event(one, clock, amount, who) for one, clock, amount, who in CHANGES]  # type: ignore[arg-type]

BODIES = """
    SELECT s.name, e.sequence, e.body FROM holdfast.entry e
    JOIN holdfast.subject s ON s.id = e.subject_id ORDER BY 1, 2
"""
REFUSED = "SELECT reason, detail FROM holdfast.quarantine ORDER BY reason"


def _encoded(line: bytes) -> bytes:
    row: dict[str, Any] = {"amount_minor": None} | json.loads(line)
    (clock,) = (change[1] for change in CHANGES if change[0] == row["event_id"])
    stream = io.BytesIO()
    row |= {"occurred_at": micros(at(clock))}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), row)
    return stream.getvalue()


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.answers["/schemas/ids/7"] = (200, {"schema": json.dumps(SCHEMA)})
        yield server


def test_avro_topics_give_the_decisions_of_the_same_events_in_json(
    shared_kafka: KafkaServer,
    registry: RegistryServer,
    server_dsn: str,
    template_database: str,
    tmp_path: Path,
) -> None:
    staged_or_skip("connector")
    framed = [FRAME.pack(0, 7) + _encoded(line) for line in LINES]
    unknown, bare = FRAME.pack(0, 99) + framed[0][5:], [_encoded(line) for line in LINES]
    (tmp_path / "event.avsc").write_text(json.dumps(SCHEMA))
    with_registry = ("--schema-registry", registry.url)
    with_registry += ("--schema-registry-user", "env:HOLDFAST_SECRET_REGISTRY")
    with_file = ("--avro-schema", str(tmp_path / "event.avsc"))
    bodies, refused = {}, {}
    for stream, values, options in (
        ("json", LINES, ()),
        ("registry", [*framed, unknown], ("--value-format", "avro", *with_registry)),
        ("file", [*bare, bare[0][:-1]], ("--value-format", "avro", *with_file)),
    ):
        topic = shared_kafka.make_topic()
        shared_kafka.produce(topic, values)
        with copy_of(server_dsn, template_database) as dsn:
            done = run_to_end(
                tmp_path,
                dsn,
                shared_kafka.bootstrap_servers,
                topic,
                stream,
                *options,
                secrets=SECRETS,
            )
            assert done.returncode == ExitCode.OK, done.stderr
            with psycopg.connect(dsn) as db:
                bodies[stream] = db.execute(BODIES).fetchall()
                refused[stream] = db.execute(REFUSED).fetchall()
    assert len(bodies["json"]) == 2
    assert bodies["registry"] == bodies["file"] == bodies["json"]
    assert [reason for reason, _ in refused["json"]] == ["missing_amount"]
    for stream, words in (
        ("registry", "the schema registry has no schema 99"),
        ("file", "not of its Avro schema"),
    ):
        (malformed, detail), (missing, _) = refused[stream]
        assert (malformed, missing) == ("malformed", "missing_amount")
        assert words in detail
    kept = json.loads((tmp_path / "file" / "holdfast.json").read_text())
    assert kept["sources"][0]["schema"].startswith("sha256:")
    assert None not in {who for _, who in registry.seen}
    assert "sesame" not in (tmp_path / "registry" / "holdfast.json").read_text()
