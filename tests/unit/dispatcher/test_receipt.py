"""A receipt is kept only when it proves itself."""

import json
from typing import Any

import pytest

from dispatcher.receipt import proven_receipt
from dispatcher.receiver.secret import Secret
from tests.support.sender import KEY_BYTES, OTHER_KEY_BYTES, receipt

KEY = "hf_" + "0" * 32
ANSWER = {"key": KEY, "outcome": "applied", "applied_at": "2026-11-02T12:15:01Z"}
SECRETS = [Secret(OTHER_KEY_BYTES), Secret(KEY_BYTES)]


def body(**changes: Any) -> bytes:
    return json.dumps({**ANSWER, "receipt": receipt(ANSWER), "more": "ignored", **changes}).encode()


def test_genuine_receipt_of_either_secret_is_kept() -> None:
    kept = proven_receipt(body(), KEY, SECRETS)
    assert kept is not None
    assert json.loads(kept) == {**ANSWER, "receipt": receipt(ANSWER)}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"ok",
        b"[1]",
        b'"x"',
        b"{}",
        b"\xff",
        b"[" * 16_000,
        body(key="hf_" + "1" * 32),
        body(outcome="duplicate"),
        body(outcome="invented"),
        body(applied_at="2026-11-02T12:15:02Z"),
        body(applied_at=None),
        body(applied_at="\ud800"),
        body(receipt=None),
        body(receipt="v1,"),
        body(receipt="é"),
        body(receipt=receipt(ANSWER, bytes(32))),
    ],
)
def test_anything_else_is_no_receipt(answer: bytes) -> None:
    assert proven_receipt(answer, KEY, SECRETS) is None


def test_receipt_for_another_key_proves_nothing_here() -> None:
    assert proven_receipt(body(), "hf_" + "1" * 32, SECRETS) is None
