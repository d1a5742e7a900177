"""Signatures, checked with nothing but the standard library and a published vector."""

import base64
import hashlib
import hmac

from dispatcher.receiver.secret import Secret
from dispatcher.signing import Signer, structured_string


def independent(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    mac = hmac.new(key, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(mac).decode()


def test_published_vector_of_standard_webhooks() -> None:
    signer = Signer([Secret(base64.b64decode("plJ3nmyCDGBKInavdOK15jsl"))])
    body = b'{"event_type":"ping","data":{"success":true}}'
    signature = signer.sign("msg_loFOjxBNrRLzqYUf", 1731705121, body)
    assert signature == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_each_active_secret_signs_the_same_bytes() -> None:
    keys = [bytes(range(32)), bytes(range(32, 96))]
    body = '{"name":"Zoë"}'.encode()
    signature = Signer([Secret(key) for key in keys]).sign("hf_1", 1795220681, body)
    assert signature == " ".join(independent(key, "hf_1", 1795220681, body) for key in keys)


def test_key_is_a_structured_string_with_its_quotes() -> None:
    assert structured_string("hf_0123") == '"hf_0123"'
