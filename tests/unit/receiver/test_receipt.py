"""The answer and its signed receipt."""

import json
from datetime import UTC, datetime

import pytest

from holdfast.receiver import Receipt, Secret, answer, receipt_is_genuine
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, key_of, receipt

SECRET = Secret(KEY_BYTES)
KEY = key_of("m_482", 1)
APPLIED_AT = datetime(2026, 11, 2, 12, 15, 1, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("outcome", ["applied", "duplicate", "stale"])
def test_receipt_is_signed_with_the_deliverys_secret(outcome: str) -> None:
    headers = answer(Receipt(KEY, ReceiptOutcome(outcome), APPLIED_AT), SECRET)
    content = json.loads(headers.body)
    assert headers.status == 200
    assert list(content) == ["key", "outcome", "applied_at", "receipt"]
    assert content["applied_at"] == "2026-11-02T12:15:01.250000Z"
    assert content["receipt"] == receipt(content)


def test_receipt_of_another_secret_or_outcome_is_not_genuine() -> None:
    content = json.loads(answer(Receipt(KEY, ReceiptOutcome.APPLIED, APPLIED_AT), SECRET).body)
    applied_at, signed = content["applied_at"], content["receipt"]
    applied, stale = ReceiptOutcome.APPLIED, ReceiptOutcome.STALE
    assert receipt_is_genuine(SECRET, KEY, applied, applied_at, signed)
    assert not receipt_is_genuine(SECRET, KEY, stale, applied_at, signed)
    assert not receipt_is_genuine(Secret(OTHER_KEY_BYTES), KEY, applied, applied_at, signed)
    assert not receipt_is_genuine(SECRET, KEY, applied, applied_at, "v1,\ud800")


@pytest.mark.parametrize(
    ("outcome", "status", "retry_after"), [("in_progress", 409, "1"), ("conflict", 422, None)]
)
def test_what_proves_nothing_carries_no_receipt(
    outcome: str, status: int, retry_after: str | None
) -> None:
    headers = answer(Receipt(KEY, ReceiptOutcome(outcome)), SECRET)
    assert (headers.status, headers.headers.get("retry-after")) == (status, retry_after)
    assert json.loads(headers.body) == {
        "key": KEY,
        "outcome": outcome,
        "applied_at": None,
        "receipt": None,
    }


def test_repeated_answer_says_so() -> None:
    first = answer(Receipt(KEY, ReceiptOutcome.APPLIED, APPLIED_AT), SECRET)
    again = answer(Receipt(KEY, ReceiptOutcome.DUPLICATE, APPLIED_AT, replayed=True), SECRET)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
