"""A reissued decision's key follows from the old one, and its content stays."""

import json
from datetime import UTC, datetime

import pytest

from holdfast.dispatcher.operators.reissue.rules import (
    batch_id_of,
    entry_text,
    parts_behind,
    parts_of,
)
from holdfast.sink.contract.envelope import Envelope
from holdfast.sink.contract.key import Key

OLD = Key.of(["payout-hold/v1", "m_482"])


def test_key_follows_from_the_old_one_and_the_ordinal_alone() -> None:
    keys = [Key.of(parts_of(OLD, ordinal)).digest for ordinal in (1, 2, 3)]
    assert len(set(keys)) == 3
    assert [parts_behind(OLD, key)[-1] for key in keys] == ["1", "2", "3"]
    with pytest.raises(ValueError, match="is not a key of a reissue"):
        parts_behind(OLD, OLD.digest)


def test_number_of_the_batch_fits_the_ledger_and_differs() -> None:
    numbers = {batch_id_of(Key.of(parts_of(OLD, n)).digest) for n in range(1, 100)}
    assert len(numbers) == 99
    assert all(0 <= number < 2**63 for number in numbers)


def test_content_is_the_old_one_under_the_new_key() -> None:
    at = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
    data = {"merchant_id": "é\u202e", "exposure_minor": 2**53 - 1}
    body = Envelope.of("payout_hold.block", at, OLD, data).body(7)
    entry = {
        "subject": "m_482",
        "type": "payout_hold.block",
        "occurred_at": at,
        "priority": 3,
        "traceparent": None,
        "body": body.decode(),
    }
    row = json.loads(entry_text(entry, parts_of(OLD, 1)))
    assert (row["data"], row["key"]) == (data, ["reissue/v1", OLD.text, "1"])
    assert (row["occurred_at"], row["priority"]) == ("2026-11-02T12:15:00Z", 3)
