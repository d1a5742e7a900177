"""The contract's bytes, frozen: what one version wrote, every later one must find again.

The texts were written by hand, and each hash is recomputed here with hashlib from the text beside
it: a vector cannot agree with the code by having been made with it. A change of a vector is a new
version of the contract, never an edit.
"""

import base64
import hashlib
import hmac
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.dispatcher.outbound.request import Composer
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.canonical import NotCanonical, canonical_json
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import EnvelopeStyle
from holdfast.sink.rows.digest import digest

VECTORS = Path(__file__).parent / "vectors"


def _load(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


CANONICAL = _load("canonical_json")
KEYS = _load("keys")
ENVELOPES = _load("envelopes")


def _name(vector: dict[str, Any]) -> str:
    return str(vector.get("name") or vector.get("type") or vector.get("canonical"))


@pytest.mark.parametrize("vector", CANONICAL["accepted"], ids=_name)
def test_canonical_json_is_frozen(vector: dict[str, Any]) -> None:
    written = vector["canonical"].encode()
    assert json.loads(written) == vector["value"]
    assert hashlib.sha256(written).hexdigest() == vector["sha256"]
    assert canonical_json(vector["value"]) == written


@pytest.mark.parametrize("vector", CANONICAL["refused"], ids=_name)
def test_value_that_parsers_disagree_about_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(NotCanonical):
        canonical_json(vector["value"])


@pytest.mark.parametrize("vector", KEYS["accepted"], ids=_name)
def test_key_is_frozen(vector: dict[str, Any]) -> None:
    sha256 = hashlib.sha256(vector["canonical"].encode()).hexdigest()
    assert vector["text"] == f"hf_{sha256[:32]}"
    key = Key.of(vector["parts"])
    assert key.text == vector["text"]
    assert key.digest.hex == sha256[:32]
    assert Key.parse(vector["text"]) == key


@pytest.mark.parametrize("vector", KEYS["refused"], ids=_name)
def test_unclean_key_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(NotCanonical):
        Key.of(vector["parts"])


@pytest.mark.parametrize("vector", ENVELOPES, ids=_name)
def test_body_and_content_are_frozen(vector: dict[str, Any]) -> None:
    timestamp = datetime.fromisoformat(vector["timestamp"])
    envelope = Envelope.of(vector["type"], timestamp, Key.of(vector["key_parts"]), vector["data"])
    body = vector["body"]
    assert envelope.body(vector["sequence"]) == body.encode()
    assert list(json.loads(body)) == ["type", "timestamp", "sequence", "key", "data"]

    without = body.replace(f'"sequence":{vector["sequence"]},', '"sequence":,', 1)
    assert hashlib.sha256(without.encode()).hexdigest()[:32] == vector["content"]
    assert envelope.content.hex == vector["content"]


def test_digest_of_a_batch_is_frozen() -> None:
    vector = _load("digest")
    hashes = sorted(hashlib.sha256(row.encode()).digest() for row in vector["encoded"])
    hashed = (vector["version"] + vector["header"]).encode()
    hashed += hashlib.sha256(b"".join(hashes)).digest()
    assert hashlib.sha256(hashed).hexdigest() == vector["sha256"]
    schema = pa.schema(
        {
            "subject": pa.string(),
            "type": pa.string(),
            "key": pa.list_(pa.string()),
            "occurred_at": pa.timestamp("us", "UTC"),
            "data": pa.struct({"merchant_id": pa.string(), "exposure_minor": pa.int64()}),
        }
    )
    rows = pa.Table.from_pylist(vector["rows"], schema)
    assert digest({vector["table"]: rows}).hex() == vector["sha256"]


VECTORS_REQUESTS = json.loads(
    (Path(__file__).parent / "vectors" / "requests.json").read_text(encoding="utf-8")
)


def _name_requests(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def _independent(secret: str, vector: dict[str, Any]) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{vector['key']}.{vector['timestamp']}.{vector['body']}".encode()
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


@pytest.mark.parametrize("vector", VECTORS_REQUESTS, ids=_name_requests)
def test_request_is_frozen(vector: dict[str, Any]) -> None:
    body = vector["body"].encode()
    headers = tuple((name, value) for name, value in vector["headers"])
    assert dict(headers)["webhook-signature"] == " ".join(
        _independent(secret, vector) for secret in vector["secrets"]
    )
    composer = Composer(
        vector["user_agent"],
        EnvelopeStyle(vector["envelope"]),
        tuple((name, value) for name, value in vector["custom"]),
    )
    signer = Signer([Secret.parse(secret) for secret in vector["secrets"]])
    request = composer.compose(
        key=vector["key"],
        subject_id=vector["subject_id"],
        subject=vector["subject"],
        timestamp=vector["timestamp"],
        signature=signer.sign(vector["key"], vector["timestamp"], body),
        traceparent=vector["traceparent"],
        body=body,
    )
    assert (request.headers, request.body) == (headers, body)


def test_envelopes_differ_only_in_cloudevents_headers() -> None:
    standard, *_ = (vector for vector in VECTORS_REQUESTS if vector["envelope"] == "standard")
    events, *_ = (vector for vector in VECTORS_REQUESTS if vector["envelope"] == "cloudevents")
    others = [header for header in events["headers"] if not header[0].startswith("ce-")]
    assert (others, events["body"]) == (standard["headers"], standard["body"])
