"""Signatures, checked with nothing but the standard library and a published vector."""

import base64
import hashlib
import hmac

import http_sf

from holdfast.dispatcher.outbound.request import Composer
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.key import Key


def independent(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    mac = hmac.new(key, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(mac).decode()


def test_published_vector_of_standard_webhooks() -> None:
    signer = Signer([Secret(base64.b64decode("plJ3nmyCDGBKInavdOK15jsl"))])
    body = b'{"event_type":"ping","data":{"success":true}}'
    signature = signer.sign("msg_loFOjxBNrRLzqYUf", 1731705121, body)
    assert signature == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_each_active_secret_signs_the_same_bytes() -> None:
    keys = [bytes(range(32)), bytes(range(32, 96)), bytes(24)]
    body = '{"name":"Zoë"}'.encode()
    signature = Signer([Secret(key) for key in keys]).sign("hf_1", 1795220681, body)
    assert signature == " ".join(independent(key, "hf_1", 1795220681, body) for key in keys)


def test_key_is_a_structured_string_as_a_library_writes_it() -> None:
    key = Key.of(["payout-hold/v1", "m_482"]).text
    request = Composer("x").compose(
        key=key, subject_id=1, timestamp=1, signature="v1,x", traceparent=None, body=b"{}"
    )
    assert dict(request.headers)["idempotency-key"] == http_sf.ser(key)


def test_signer_shows_no_secret() -> None:
    signer = Signer([Secret(bytes(range(32)))])
    assert "\\x01\\x02" not in repr(signer)
    assert not hasattr(signer, "__dict__")
