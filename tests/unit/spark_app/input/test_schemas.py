"""The options that name the schemas of Avro values, and what a checkpoint records of them."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input import schemas
from holdfast.spark_app.input.formats import ValueFormat
from holdfast.spark_app.input.sources import Kafka, SourcesDiffer, followed_by, from_json, to_json
from tests.support.kafka.registry import registry_server


def _schema(folder: Path, at: str = "timestamp-millis", **other: object) -> Path:
    fields = [{"name": "occurred_at", "type": {"type": "long", "logicalType": at}}]
    file = folder / "event.avsc"
    file.write_text(json.dumps({"type": "record", "name": "Event", "fields": fields} | other))
    return file


def test_checkpoint_records_the_schema_and_refuses_another_one(tmp_path: Path) -> None:
    millis = schemas.of_file(_schema(tmp_path)).recorded
    micros = schemas.of_file(_schema(tmp_path, "timestamp-micros")).recorded
    assert millis != micros
    kept = Kafka("pay", value_format=ValueFormat.AVRO, schema=millis)
    assert from_json(to_json(kept)) == kept
    assert "schema" not in to_json(Kafka("pay"))
    assert followed_by([kept], [kept]) == (kept,)
    for other in (micros, schemas.REGISTRY):
        with pytest.raises(SourcesDiffer, match="the schema of --topic pay was sha256:"):
            followed_by([kept], [replace(kept, schema=other)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "it is not text"),
        (b"{", "its schema is not an Avro schema"),
        (b" " * (1 << 20) + b"{}", "larger than 1 MiB"),
        (
            b'{"type":"record","name":"E","fields":[{"name":"amount_minor","type":"double"}]}',
            "amount_minor is double in its schema",
        ),
    ],
)
def test_file_without_a_schema_of_events_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "event.avsc"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CommandError, match=said) as refused:
        schemas.of_file(file)
    assert refused.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("url", "user", "said"),
    [
        ("ftp://registry", None, "is not an http:// or https:// URL"),
        ("http://", None, "is not an http:// or https:// URL"),
        ("http://[::1", None, "is not an http:// or https:// URL"),
        ("http://reader:sesame@registry", None, "--schema-registry-user"),
        ("http://registry?a=sesame", None, "--schema-registry-user"),
        ("https://registry", "reader:sesame", "takes a reference"),
        ("https://registry", "env:HOLDFAST_NOT_SET", "empty or not set"),
        ("https://registry", "env:HOLDFAST_NO_COLON", "expected NAME:PASSWORD"),
    ],
)
def test_registry_that_cannot_be_asked_is_refused_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, url: str, user: str | None, said: str
) -> None:
    monkeypatch.setenv("HOLDFAST_NO_COLON", "sesame")
    with pytest.raises(CommandError, match=said) as refused:
        schemas.of_registry(url, user, None)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "user", "ca"),
    [
        ("http://registry", "env:HOLDFAST_READER", None),
        ("http://registry", None, "env:HOLDFAST_READER"),
        ("http://127.0.0.1:8081", None, "env:HOLDFAST_READER"),
    ],
)
def test_password_is_not_sent_in_clear_and_a_certificate_not_ignored(
    monkeypatch: pytest.MonkeyPatch, url: str, user: str | None, ca: str | None
) -> None:
    monkeypatch.setenv("HOLDFAST_READER", "reader:sesame")
    with pytest.raises(CommandError, match="https://") as refused:
        schemas.of_registry(url, user, ca)
    assert refused.value.exit_code is ExitCode.USAGE
    for own in ("http://127.0.0.1:8081", "http://localhost", "http://[::1]:8081", "https://other"):
        assert schemas.of_registry(own, "env:HOLDFAST_READER", None).recorded == schemas.REGISTRY


def test_registry_that_does_not_answer_at_a_start_is_named() -> None:
    with pytest.raises(CommandError, match=r"127.0.0.1:9 cannot be used: .* Nothing was started"):
        schemas.of_registry("http://127.0.0.1:9", None, None).require()
    with registry_server() as server:
        found = schemas.of_registry(server.url, None, None)
        found.require()
        assert found.recorded == "registry"
        parsed = found.parser()(pa.array([b"\0\0\0\0\x07\x04e1"], pa.binary()))
    assert parsed.events["event_id"].to_pylist() == ["e1"]
