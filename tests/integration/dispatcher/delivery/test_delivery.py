"""Deliveries from the outbox to a real receiver: order, bytes, retries, dead letters."""

import base64
import hashlib
import hmac
import json
import time
from collections import Counter
from importlib.metadata import version
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.canonical import rfc3339
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import AttemptRow, attempts, lanes, make_due
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.entries import BLOCK, RELEASE
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, receipt, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.job.decisions import Decisions

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def one(db: psycopg.Connection, query: str, values: list[Any] | None = None) -> Any:
    (value,) = db.execute(query.encode(), values).fetchone() or (None,)
    return value


class FailFirst:
    """Fails each entry a number of times, then takes it."""

    def __init__(self, times: int, failure: Behaviour) -> None:
        self._times = times
        self._failure = failure
        self._seen: Counter[str] = Counter()

    def __call__(self, seen: Seen) -> Behaviour:
        key = seen.header("webhook-id")
        self._seen[key] += 1
        return self._failure if self._seen[key] <= self._times else answer(200)


@pytest.mark.guarantee(5)
def test_entries_of_a_subject_arrive_in_order_and_subjects_side_by_side(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, total_timeout_ms=30_000)
    receiver.script = lambda _seen: webhooks.meeting(receiver, 12)
    subjects = [f"m_{n}" for n in range(12)]
    for _ in range(3):
        decisions.write(*subjects * 4)
    report = drain(dsn)
    assert report.counts == {"delivered": 144}
    for subject in subjects:
        assert receiver.sequences(subject) == list(range(1, 13))
    assert receiver.overlaps == 0
    assert {lane.state for lane in lanes(db).values()} == {LaneState.IDLE}
    assert one(db, "SELECT count(*) FROM holdfast.dispatcher_instance") == 0


def test_request_is_signed_as_standard_webhooks_says(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verified here with nothing but the standard library."""
    monkeypatch.setenv("HOLDFAST_SECRET_OTHER", secret_text(OTHER_KEY_BYTES))
    add_endpoint(db, receiver.url, secret_refs=[f"env:{SECRET}", "env:HOLDFAST_SECRET_OTHER"])
    decisions.write("m_482")
    db.execute("UPDATE holdfast.entry SET traceparent = %s", [TRACE])
    drain(dsn)
    (seen,) = receiver.seen
    body = bytes(one(db, "SELECT body FROM holdfast.entry"))
    key = "hf_" + one(db, "SELECT key FROM holdfast.entry").hex
    assert seen.body == body
    assert list(json.loads(body)) == ["type", "timestamp", "sequence", "key", "data"]
    assert seen.content["key"] == seen.header("webhook-id") == key
    assert seen.header("idempotency-key") == f'"{key}"'
    assert seen.header("content-type") == "application/json"
    assert seen.header("user-agent") == f"holdfast/{version('holdfast')}"
    assert seen.header("accept-encoding") == "identity"
    assert seen.header("traceparent") == TRACE
    timestamp = seen.header("webhook-timestamp")
    assert abs(int(timestamp) - time.time()) < 60
    content = f"{key}.{timestamp}.".encode() + body
    macs = [
        "v1," + base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
        for secret in (KEY_BYTES, OTHER_KEY_BYTES)
    ]
    assert seen.header("webhook-signature") == " ".join(macs)


FAILURES = {
    "503": (answer(503), "failed"),
    "409": (answer(409), "failed"),
    "302": (answer(302, location="http://127.0.0.1/"), "failed"),
    "429": (answer(429, retry_after="0"), "throttled"),
    "reset": (webhooks.reset, "unknown"),
}


@pytest.mark.guarantee(5)
def test_entry_is_tried_again_with_the_same_bytes_while_its_lane_waits(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    fail_first = {subject: FailFirst(2, failure) for subject, (failure, _) in FAILURES.items()}
    receiver.script = lambda seen: fail_first[seen.subject](seen)
    decisions.write(*[*FAILURES] * 3)
    report = drain(dsn)
    assert report.counts == {"delivered": 15, "failed": 18, "throttled": 6, "unknown": 6}
    bodies: dict[str, set[bytes]] = {}
    for seen in receiver.seen:
        bodies.setdefault(seen.header("webhook-id"), set()).add(seen.body)
    assert all(len(different) == 1 for different in bodies.values())
    for subject, (_, outcome) in FAILURES.items():
        assert receiver.sequences(subject) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        of_subject = [row for row in attempts(db) if row.subject == subject]
        assert of_subject == [
            AttemptRow(subject, sequence, number, outcome if number < 3 else "delivered")
            for sequence in (1, 2, 3)
            for number in (1, 2, 3)
        ]
    assert {lane.state for lane in lanes(db).values()} == {LaneState.IDLE}


@pytest.mark.rest
def test_signature_is_made_anew_for_each_attempt(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[3])
    receiver.script = FailFirst(1, answer(500))
    decisions.write("m_1")
    drain(dsn)
    receiver.script = lambda _seen: answer(200)
    while lanes(db)["m_1"].state is LaneState.DUE:
        drain(dsn)
    first, second = receiver.seen
    assert first.header("webhook-timestamp") != second.header("webhook-timestamp")
    assert first.header("webhook-signature") != second.header("webhook-signature")
    assert (first.body, first.header("webhook-id")) == (second.body, second.header("webhook-id"))


@pytest.mark.guarantee(7)
def test_rejected_entry_is_dead_at_once_and_stops_its_lane_only(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    says = b'{"error":"no such merchant \x00 whsec_MfKQ9r8GKYqrTwjUPD8I"}'
    rejects = {"m_400": answer(400), "m_422": answer(422, says)}
    receiver.script = lambda seen: rejects.get(seen.subject, answer(200))
    decisions.write(*[*rejects, "m_200"] * 2)
    report = drain(dsn)
    assert report.counts == {"delivered": 2, "rejected": 2, "dead": 2}
    assert receiver.sequences("m_400") == receiver.sequences("m_422") == [1]
    states = {subject: lane.state for subject, lane in lanes(db).items()}
    stopped = dict.fromkeys(rejects, LaneState.STOPPED)
    assert states == {**stopped, "m_200": LaneState.IDLE}
    dead = db.execute(
        "SELECT sequence, d.key = e.key, d.created_at = e.created_at, reason::text, attempts"
        " FROM holdfast.dead_letter d JOIN holdfast.entry e USING (subject_id, sequence)"
    ).fetchall()
    assert dead == [(1, True, True, "rejected", 1)] * 2
    stored = one(db, "SELECT response FROM holdfast.attempt WHERE status = 422")
    assert stored == '{"error":"no such merchant \N{REPLACEMENT CHARACTER} ***"}'


def test_dead_entry_is_passed_over_where_the_order_policy_says_so(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, order_policy="skip")
    receiver.script = lambda seen: answer(400 if seen.sequence == 2 else 200)
    decisions.write("m_1", "m_1", "m_1")
    drain(dsn)
    assert receiver.sequences("m_1") == [1, 2, 3]
    assert lanes(db)["m_1"].state is LaneState.IDLE
    assert one(db, "SELECT sequence FROM holdfast.dead_letter") == 2


def test_entry_that_used_up_its_schedule_is_exhausted(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[0, 0, 0])
    receiver.script = lambda _seen: answer(500, b"out of order")
    decisions.write("m_1", "m_1")
    drain(dsn)
    assert receiver.sequences("m_1") == [1, 1, 1, 1]
    letter = db.execute("SELECT reason::text, attempts, detail FROM holdfast.dead_letter")
    assert letter.fetchone() == ("exhausted", 4, "answered 500: out of order")


def test_retry_after_is_honoured_as_a_time_in_the_database(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[5, 30])
    receiver.script = lambda seen: answer(int(seen.subject), retry_after="600")
    decisions.write("429", "503", "409")
    drain(dsn)
    waits = db.execute(
        "SELECT extract(epoch FROM retry_at - finished_at)::float, retry_at = due_at"
        " FROM holdfast.attempt JOIN holdfast.lane USING (endpoint_id, subject_id)"
    ).fetchall()
    assert len(waits) == len(receiver.seen) == 3
    for seconds, same in waits:
        assert 600 <= seconds <= 660
        assert same is True


def test_endpoint_that_is_gone_is_disabled_and_loses_nothing(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    receiver.script = lambda _seen: answer(410)
    decisions.write("m_1", "m_1")
    drain(dsn)
    state, why = db.execute(
        "SELECT state::text, state_reason FROM holdfast.endpoint"
    ).fetchone() or (
        None,
        "",
    )
    assert (state, "410" in why) == ("disabled", True)
    audit = db.execute("SELECT actor, action, target, reason FROM holdfast.operator_action")
    assert audit.fetchall() == [("dispatcher", "endpoint.disabled", "payouts", why)]
    assert one(db, "SELECT count(*) FROM holdfast.dead_letter") == 0
    assert lanes(db)["m_1"].state is LaneState.DUE
    receiver.script = lambda _seen: answer(200)
    decisions.write("m_1", "m_2")
    drain(dsn)
    assert receiver.sequences("m_1") == [1]
    with Overview.connect(dsn) as store:
        totals = store.totals()
        assert (totals["due_lanes"], totals["oldest_waiting_seconds"]) == (0, None)
    with Endpoints.connect(dsn) as endpoints:
        endpoints.set_endpoint_state("payouts", "active", "it is back")
    drain(dsn)
    assert receiver.sequences("m_1") == [1, 1, 2, 3]
    assert receiver.sequences("m_2") == [1]
    assert [row.number for row in attempts(db) if row.subject == "m_1"] == [1, 2, 1, 1]


def test_missing_entry_is_said_and_its_lane_left_alone(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_1", "m_1", "m_2")
    db.execute("DELETE FROM holdfast.entry WHERE sequence = 2")
    assert drain(dsn).counts == {"delivered": 2, "gaps": 1}
    assert receiver.sequences("m_1") == [1]
    assert receiver.sequences("m_2") == [1]
    assert lanes(db)["m_1"].state is LaneState.DUE


@pytest.mark.parametrize("state", ["paused", "disabled"])
def test_nothing_is_sent_to_an_endpoint_that_is_not_active(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver, state: str
) -> None:
    add_endpoint(db, receiver.url, state=state)
    decisions.write("m_1")
    assert drain(dsn).counts == {}
    assert lanes(db)["m_1"].state is LaneState.DUE
    assert receiver.seen == []


def test_two_endpoints_are_served_apart(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    """One hangs in every request; the other gets everything, and its own types only."""
    receiver.script = lambda seen: webhooks.silence if seen.target == "/hangs" else answer(200)
    hangs = receiver.url.replace("/webhooks", "/hangs")
    add_endpoint(
        db,
        hangs,
        name="hangs",
        total_timeout_ms=300,
        connect_timeout_ms=300,
        schedule_seconds=[600],
    )
    healthy = add_endpoint(db, receiver.url, name="healthy", types=[BLOCK])
    subjects = [f"m_{n}" for n in range(10)]
    decisions.write_rows(
        [decisions.row(subject, type_) for subject in subjects for type_ in (BLOCK, RELEASE)]
    )
    report = drain(dsn, concurrency=4)
    assert report.counts == {"delivered": 10, "unknown": 10}
    delivered = [seen.at for seen in receiver.seen if seen.target == "/webhooks"]
    hung = sorted(seen.at for seen in receiver.seen if seen.target == "/hangs")
    assert max(delivered) < hung[-1]
    assert {lane.state for lane in lanes(db, healthy).values()} == {LaneState.IDLE}


def test_receiver_that_was_down_gets_everything_in_order(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[600] * 3)
    receiver.stop()
    decisions.write(*["m_1", "m_2"] * 3)
    assert drain(dsn).counts == {"failed": 2}
    errors = db.execute("SELECT DISTINCT outcome::text, status, error FROM holdfast.attempt")
    ((outcome, status, error),) = errors.fetchall()
    assert (outcome, status) == ("failed", None)
    assert "connect" in error.lower()
    receiver.start()
    make_due(db)
    assert drain(dsn).counts == {"delivered": 6}
    assert receiver.sequences("m_1") == receiver.sequences("m_2") == [1, 2, 3]


def test_receipt_is_kept_only_when_it_is_genuine(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)

    def receipts(seen: Seen) -> Behaviour:
        content: dict[str, Any] = {
            "key": seen.content["key"],
            "outcome": "applied",
            "applied_at": "2026-11-02T12:15:01Z",
        }
        content["receipt"] = receipt(content)
        if seen.subject == "forged":
            content["outcome"] = "duplicate"
        return answer(200, json.dumps(content).encode())

    receiver.script = receipts
    decisions.write("genuine", "forged")
    drain(dsn)
    kept = dict(
        db.execute(
            "SELECT name, receipt FROM holdfast.attempt"
            " JOIN holdfast.subject ON subject.id = subject_id"
        ).fetchall()
    )
    assert json.loads(kept["genuine"])["outcome"] == "applied"
    assert kept["forged"] is None


def test_endpoint_that_a_drain_leaves_waiting_is_named_with_its_end(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    names = ("paused", "broken", "held", "idle", "fine")
    ids = {name: add_endpoint(db, f"{receiver.url}/{name}", name=name) for name in names}
    db.execute("UPDATE holdfast.endpoint SET types = '{nothing}' WHERE name = 'idle'")
    db.execute(
        "UPDATE holdfast.endpoint SET state = 'paused', state_reason = 'moving house'"
        " WHERE name IN ('paused', 'idle')"
    )
    opened = one(
        db,
        "UPDATE holdfast.endpoint_pace SET breaker = 'open', breaker_reason = 'HTTP 500',"
        " breaker_until = now() + interval '5 min' WHERE endpoint_id = %s RETURNING breaker_until",
        [ids["broken"]],
    )
    held = one(
        db,
        "UPDATE holdfast.endpoint_pace SET held_until = now() + interval '23 h',"
        " held_by = 'answered 429 with Retry-After' WHERE endpoint_id = %s RETURNING held_until",
        [ids["held"]],
    )
    decisions.write("m_1")
    report = drain(dsn)
    assert report.counts == {"delivered": 1}
    assert report.waiting == {
        "paused": "it is paused (moving house) until"
        " `holdfast endpoint resume paused --reason TEXT`",
        "broken": f"its breaker is open until {rfc3339(opened)}, after HTTP 500",
        "held": f"its receiver answered 429 with Retry-After: it is held until {rfc3339(held)}",
    }


def test_endpoint_that_nothing_can_be_sent_to_keeps_its_decisions(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    refs = [f"env:{SECRET}", "env:HOLDFAST_SECRET_NO"]
    add_endpoint(db, receiver.url, name="secret", secret_refs=refs)
    add_endpoint(db, "http://127.0.0.1:1/a#b", name="url")
    add_endpoint(db, receiver.url, name="lease", total_timeout_ms=100_000)
    add_endpoint(db, receiver.url, name="fine")
    decisions.write("m_1")
    report = drain(dsn, lease_seconds=30)
    assert report.counts == {"delivered": 1}
    reasons = {"secret": "SECRET_NO is empty or not set", "url": "fragment", "lease": "too short"}
    assert report.waiting.keys() == reasons.keys()
    assert all(reason in report.waiting[name] for name, reason in reasons.items())
    assert one(db, "SELECT count(*) FROM holdfast.dead_letter") == 0
    waiting = "SELECT count(*) FROM holdfast.lane WHERE due_at <= now() AND attempt = 0"
    assert one(db, waiting) == 3
