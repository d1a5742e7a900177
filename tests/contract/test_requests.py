"""The requests on the wire, frozen: every header in its order, for both envelopes.

The header lists were written by hand. Each signature is recomputed here with nothing but the
standard library, so a vector cannot agree with the code by having been made with it.
"""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.dispatcher.outbound.request import Composer
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.states import EnvelopeStyle

VECTORS = json.loads(
    (Path(__file__).parent / "vectors" / "requests.json").read_text(encoding="utf-8")
)


def _name(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def _independent(secret: str, vector: dict[str, Any]) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{vector['key']}.{vector['timestamp']}.{vector['body']}".encode()
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


@pytest.mark.parametrize("vector", VECTORS, ids=_name)
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


def test_both_envelopes_differ_in_the_headers_of_cloudevents_alone() -> None:
    standard, *_ = (vector for vector in VECTORS if vector["envelope"] == "standard")
    events, *_ = (vector for vector in VECTORS if vector["envelope"] == "cloudevents")
    others = [header for header in events["headers"] if not header[0].startswith("ce-")]
    assert (others, events["body"]) == (standard["headers"], standard["body"])
