"""`holdfast trace`: a decision from its batch to its receipts, on one screen."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import make_due
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import receipt, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.job.decisions import Decisions

APPLIED_AT = "2026-11-02T12:15:01Z"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    monkeypatch.setenv(SECRET, secret_text())
    with webhooks.listening() as receiver:
        yield receiver


def _with_receipt(seen: Seen) -> Behaviour:
    content: dict[str, Any] = {
        "key": seen.content["key"],
        "outcome": "applied",
        "applied_at": APPLIED_AT,
    }
    content["receipt"] = receipt(content)
    return answer(200, json.dumps(content).encode())


def test_decision_is_traced_from_its_batch_to_its_receipt(
    dsn: str, db: psycopg.Connection, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[3600])
    with Decisions(dsn) as decisions:
        row = decisions.row("m_1")
        decisions.write_rows([row])
    key = Key.of(row["key"]).text
    waits = holdfast("trace", key, dsn=dsn).stdout
    assert "routed     not yet" in waits
    receiver.script = lambda _seen: answer(503, b"their \x1b[2J secret")
    drain(dsn)
    make_due(db)
    receiver.script = _with_receipt
    drain(dsn)

    done = holdfast("trace", key, "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["batch"]["stream"], found["batch"]["batch_id"]) == ("test", 1)
    entry = found["entry"]
    assert (entry["subject"], entry["sequence"]) == ("m_1", 1)
    assert entry["decision"] == {"merchant_id": "m_1", "exposure_minor": 8_500_000}
    assert (entry["body"], entry["body_bytes"] > 100) == (None, True)
    (endpoint,) = found["endpoints"]
    assert endpoint["verdict"] == "delivered"
    first, second = endpoint["attempts"]
    assert (first["number"], first["outcome"], first["status"]) == (1, "failed", 503)
    assert (first["response"], first["response_bytes"] > 0) == (None, True)
    assert second["receipt"]["applied_at"] == APPLIED_AT

    text = holdfast("trace", key, dsn=dsn).stdout
    for piece in (
        "payout_hold.block of m_1, sequence 1",
        "decided    exposure 8500000 minor units",
        "as one of 1 entry of batch 1 of stream test",
        "attempt 1  failed, HTTP 503",
        "attempt 2  delivered, HTTP 200",
        "receipt    applied, by the receiver's clock",
        "--body shows it",
    ):
        assert piece in text, text
    assert "secret" not in text
    whole = holdfast("trace", key, "--body", dsn=dsn).stdout
    assert f'"key":"{key}"' in whole
    assert "secret" in whole
    assert "\x1b" not in whole


def test_key_without_an_entry_is_not_traced(dsn: str) -> None:
    for code, complaint, key in (
        (ExitCode.NOTHING_MATCHED, "none ever had", Key.of(["x"]).text),
        (ExitCode.USAGE, "is not a key", "hf_1"),
    ):
        done = holdfast("trace", key, dsn=dsn)
        assert (done.returncode, complaint in done.stderr) == (code, True), done.stderr
