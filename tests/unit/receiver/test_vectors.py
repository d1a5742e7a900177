"""The published vectors: right by the standard library alone, and kept by the verifier."""

import base64
import hashlib
import hmac
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.receiver import (
    Inquiry,
    Reason,
    Secret,
    VerificationError,
    receipt_is_genuine,
    verify,
    verify_inquiry,
)
from holdfast.receiver.message.window import KEY_WINDOW_DEFAULT
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.wire import INQUIRY_PATH, KEY_WINDOW, SIGNATURES_MAX, ReceiptOutcome

FOLDER = Path(__file__).parents[3] / "dispatcher" / "receiver"
VECTORS = json.loads((FOLDER / "vectors.json").read_text(encoding="utf-8"))
PROTOCOL = (Path(__file__).parents[3] / "docs" / "receivers" / "PROTOCOL.md").read_text(
    encoding="utf-8"
)
NOW = datetime.fromtimestamp(VECTORS["now"], UTC)
SECRETS = {name: Secret.parse(text) for name, text in VECTORS["secrets"].items()}
ACCEPTED = [SECRETS["current"], SECRETS["previous"]]


def named(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def pairs(vector: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in vector["headers"]]


def independent(secret: str, text: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()


@pytest.mark.parametrize("vector", VECTORS["signatures"], ids=named)
def test_signature_is_that_of_the_standard_library(vector: dict[str, Any]) -> None:
    text = f"{vector['id']}.{vector['timestamp']}.{vector['body']}".encode()
    assert independent(vector["secret"], text) == vector["signature"]


@pytest.mark.parametrize("vector", VECTORS["accepted"], ids=named)
def test_delivery_is_accepted(vector: dict[str, Any]) -> None:
    delivery = verify(pairs(vector), vector["body"].encode(), ACCEPTED, now=NOW)
    assert delivery.secret is SECRETS[vector["secret"]]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=named)
def test_delivery_is_refused_for_its_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(VerificationError) as refused:
        verify(pairs(vector), vector["body"].encode(), ACCEPTED, now=NOW)
    assert (refused.value.status, refused.value.reason) == (vector["status"], vector["reason"])


@pytest.mark.parametrize("vector", VECTORS["inquiries"], ids=named)
def test_inquiry_is_judged_as_published(vector: dict[str, Any]) -> None:
    key = vector["path"].removeprefix(INQUIRY_PATH)

    def asked() -> Inquiry:
        return verify_inquiry(pairs(vector), b"", key, ACCEPTED, now=NOW)

    if vector["status"] in {200, 404}:
        assert asked().key == key
        return
    with pytest.raises(VerificationError) as refused:
        asked()
    assert (refused.value.status, refused.value.reason) == (vector["status"], vector["reason"])


@pytest.mark.parametrize("vector", VECTORS["receipts"], ids=lambda vector: str(vector["text"]))
def test_receipt_is_genuine_and_that_of_the_standard_library(vector: dict[str, Any]) -> None:
    key, outcome, applied_at = vector["key"], vector["outcome"], vector["applied_at"]
    assert vector["text"] == f"receipt.{key}.{outcome}.{applied_at}"
    assert independent(vector["secret"], vector["text"].encode()) == vector["receipt"]
    secret, kind = Secret.parse(vector["secret"]), ReceiptOutcome(outcome)
    assert receipt_is_genuine(secret, key, kind, applied_at, vector["receipt"])


def test_deliveries_and_inquiries_are_never_confused() -> None:
    delivery = VECTORS["accepted"][0]
    inquiry = VECTORS["inquiries"][0]
    key = inquiry["path"].removeprefix(INQUIRY_PATH)
    with pytest.raises(VerificationError) as refused:
        verify_inquiry(pairs(delivery), delivery["body"].encode(), key, ACCEPTED, now=NOW)
    assert refused.value.reason is Reason.BAD_BODY
    with pytest.raises(VerificationError) as refused:
        verify(pairs(inquiry), b"", ACCEPTED, now=NOW)
    assert refused.value.reason is Reason.BAD_BODY


def test_document_names_every_reason_outcome_and_limit_of_the_code() -> None:
    named_here = set(re.findall(r"`([a-z0-9_-]+)`", PROTOCOL))
    assert {reason.value for reason in Reason} <= named_here
    assert {outcome.value for outcome in ReceiptOutcome} <= named_here
    assert {vector["reason"] for vector in VECTORS["refused"]} <= named_here
    assert f"{BODY_BYTES_MAX:,} bytes" in PROTOCOL
    assert f"more than {SIGNATURES_MAX} entries" in PROTOCOL
    assert f"{KEY_WINDOW}: {KEY_WINDOW_DEFAULT // timedelta(seconds=1)}" in PROTOCOL
    assert f"GET {INQUIRY_PATH}" in PROTOCOL
    assert VECTORS["signatures"][1]["signature"] in PROTOCOL
