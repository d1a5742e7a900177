"""The client of a schema registry, against a real HTTP server that answers as Confluent's API."""

import ssl
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.spark_app.input import registry
from holdfast.spark_app.input.avro import SCHEMA_BYTES_MAX, Schema
from holdfast.spark_app.input.events import Fault
from holdfast.spark_app.input.registry import Registry, RegistryAway
from tests.support.kafka.registry import RegistryServer, registry_server

USER = "reader:open sesame"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    registry._SCHEMAS.clear()


def _fault(found: Schema | Fault) -> str:
    assert isinstance(found, Fault)
    assert found.reason is Reason.MALFORMED
    return found.detail


def test_schema_is_fetched_once_per_process(server: RegistryServer) -> None:
    for _ in range(3):
        found = Registry(f"{server.url}/").schema(7)
        assert isinstance(found, Schema)
        assert [*found.fields] == ["event_id"]
    assert server.seen == [("/schemas/ids/7", None)]


def test_unknown_id_is_a_fault_of_the_record_and_asked_for_again(server: RegistryServer) -> None:
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
    ("answer", "said"),
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
def test_answer_that_is_not_of_a_registry_fails_the_batch_in_one_sentence(
    server: RegistryServer, answer: tuple[int, Any], said: str
) -> None:
    server.answers["/schemas/ids/7"] = answer
    server.location = f"{server.url}/schemas/ids/8"
    with pytest.raises(RegistryAway, match=said):
        Registry(server.url).schema(7)
    assert len(server.seen) == 1


def test_registry_that_is_away_or_silent_fails_the_batch(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TIMEOUT_S", 0.2)
    server.silent.set()
    with pytest.raises(RegistryAway, match="did not answer within"):
        Registry(server.url).schema(7)
    with pytest.raises(RegistryAway, match="refused"):
        Registry("http://127.0.0.1:9").schema(7)


def test_certificate_is_verified_against_the_given_one_alone(server: RegistryServer) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    ca = authority.cert_pem.bytes().decode()
    assert isinstance(Registry(url, ca=ca).schema(7), Schema)
    registry._SCHEMAS.clear()
    for other in ("", trustme.CA().cert_pem.bytes().decode()):
        with pytest.raises(RegistryAway, match="its certificate is not trusted"):
            Registry(url, ca=other).schema(7)
