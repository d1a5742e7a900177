"""Schemas of Avro values: the options that name them, and the client of a registry."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input import schemas
from holdfast.spark_app.input.avro import SCHEMA_BYTES_MAX, Schema
from holdfast.spark_app.input.events import Fault
from holdfast.spark_app.input.formats import ValueFormat
from holdfast.spark_app.input.schemas import Registry, RegistryAway
from holdfast.spark_app.input.sources import Kafka, SourcesDiffer, followed_by, from_json, to_json
from tests.support.kafka.job import RegistryServer, registry_server


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
    ("content", "message"),
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
def test_file_without_schema_is_refused(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "event.avsc"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CommandError, match=message) as refused:
        schemas.of_file(file)
    assert refused.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("url", "user", "message"),
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
def test_unavailable_registry_is_reported_without_its_secret(
    monkeypatch: pytest.MonkeyPatch, url: str, user: str | None, message: str
) -> None:
    monkeypatch.setenv("HOLDFAST_NO_COLON", "sesame")
    with pytest.raises(CommandError, match=message) as refused:
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
def test_password_needs_tls_and_certificates_are_checked(
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
        result = schemas.of_registry(server.url, None, None)
        result.require()
        assert result.recorded == "registry"
        parsed = result.parser()(pa.array([b"\0\0\0\0\x07\x04e1"], pa.binary()))
    assert parsed.events["event_id"].to_pylist() == ["e1"]


USER = "reader:open sesame"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    schemas._SCHEMAS.clear()


def _fault(fault_or_schema: Schema | Fault) -> str:
    assert isinstance(fault_or_schema, Fault)
    assert fault_or_schema.reason is Reason.MALFORMED
    return fault_or_schema.detail


def test_schema_is_fetched_once_per_process(server: RegistryServer) -> None:
    for _ in range(3):
        result = Registry(f"{server.url}/").schema(7)
        assert isinstance(result, Schema)
        assert [*result.fields] == ["event_id"]
    assert server.seen == [("/schemas/ids/7", None)]


def test_unknown_schema_id_refuses_the_record_and_is_retried(server: RegistryServer) -> None:
    client = Registry(server.url)
    assert _fault(client.schema(5)) == "the schema registry has no schema 5"
    server.answers["/schemas/ids/5"] = server.answers["/schemas/ids/7"]
    assert isinstance(client.schema(5), Schema)


def test_schema_that_is_not_avro_is_a_fault_of_the_record(server: RegistryServer) -> None:
    client = Registry(server.url)
    assert _fault(client.schema(8)) == "schema 8 is not Avro"
    assert _fault(client.schema(9)) == "schema 9: its schema is not that of a record"


def test_user_is_sent_and_not_shown(server: RegistryServer) -> None:
    client = Registry(server.url, USER)
    client.require()
    assert server.seen == [("/schemas/types", f"Basic {b64encode(USER.encode()).decode()}")]
    server.answers["/schemas/types"] = (401, {"error_code": 40101})
    with pytest.raises(RegistryAway, match="it answered 401") as refused:
        client.require()
    assert "sesame" not in f"{client!r} {refused.value}"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, {}), "it answered 500"),
        ((404, b"<h1>not here</h1>"), "it answered 404"),
        ((404, {"error_code": 404}), "it answered 404"),
        ((200, b"[" * 10_000), "it answered 200"),
        ((200, {"schema": 7}), "it answered 200"),
        ((200, b" " * (SCHEMA_BYTES_MAX + 1)), "larger than 1 MiB"),
        ((302, {}), "it answered 302"),
    ],
)
def test_invalid_registry_answer_fails_the_batch(
    server: RegistryServer, answer: tuple[int, Any], message: str
) -> None:
    server.answers["/schemas/ids/7"] = answer
    server.location = f"{server.url}/schemas/ids/8"
    with pytest.raises(RegistryAway, match=message):
        Registry(server.url).schema(7)
    assert len(server.seen) == 1


def test_registry_that_is_away_or_silent_fails_the_batch(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "TIMEOUT_S", 0.2)
    server.silent.set()
    with pytest.raises(RegistryAway, match="did not answer within"):
        Registry(server.url).schema(7)
    with pytest.raises(RegistryAway, match="refused"):
        Registry("http://127.0.0.1:9").schema(7)


def test_certificate_is_verified_only_against_the_given_one(server: RegistryServer) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    ca = authority.cert_pem.bytes().decode()
    assert isinstance(Registry(url, ca=ca).schema(7), Schema)
    schemas._SCHEMAS.clear()
    for other in ("", trustme.CA().cert_pem.bytes().decode()):
        with pytest.raises(RegistryAway, match="its certificate is not trusted"):
            Registry(url, ca=other).schema(7)
