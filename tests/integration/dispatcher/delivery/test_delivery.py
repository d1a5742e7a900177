"""Deliveries to a real receiver: order, bytes, retries, dead letters, spans, and what waits."""

import base64
import hashlib
import hmac
import json
import time
from collections import Counter
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.trace import batch_span
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import AttemptRow
from tests.support.dispatch.dispatching import SECRET, header, tracing
from tests.support.dispatch.sender import (
    BLOCK,
    KEY_BYTES,
    OTHER_KEY_BYTES,
    RELEASE,
    decision,
    receipt,
    secret_text,
    table,
)
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.world import World

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
def test_entries_arrive_in_order_of_their_subject(world: World) -> None:
    world.add_endpoint(world.receiver.url, total_timeout_ms=30_000)
    world.receiver.script = lambda _seen: webhooks.meeting(world.receiver, 12)
    subjects = [f"m_{n}" for n in range(12)]
    for _ in range(3):
        world.write(*subjects * 4)
    report = world.drain()
    assert report.counts == {"delivered": 144}
    for subject in subjects:
        assert world.receiver.sequences(subject) == list(range(1, 13))
    assert world.receiver.overlaps == 0
    assert {lane.state for lane in world.lanes().values()} == {LaneState.IDLE}
    assert one(world.db, "SELECT count(*) FROM holdfast.dispatcher_instance") == 0


def test_request_is_signed_by_the_standard(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified here with nothing but the standard library."""
    monkeypatch.setenv("HOLDFAST_SECRET_OTHER", secret_text(OTHER_KEY_BYTES))
    world.add_endpoint(secret_refs=[f"env:{SECRET}", "env:HOLDFAST_SECRET_OTHER"])
    world.write("m_482")
    world.db.execute("UPDATE holdfast.entry SET traceparent = %s", [TRACE])
    world.drain()
    (seen,) = world.receiver.seen
    body = bytes(one(world.db, "SELECT body FROM holdfast.entry"))
    key = "hf_" + one(world.db, "SELECT key FROM holdfast.entry").hex
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
def test_retry_sends_same_bytes_while_lane_waits(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    fail_first = {subject: FailFirst(2, failure) for subject, (failure, _) in FAILURES.items()}
    world.receiver.script = lambda seen: fail_first[seen.subject](seen)
    world.write(*[*FAILURES] * 3)
    report = world.drain()
    assert report.counts == {"delivered": 15, "failed": 18, "throttled": 6, "unknown": 6}
    bodies: dict[str, set[bytes]] = {}
    for seen in world.receiver.seen:
        bodies.setdefault(seen.header("webhook-id"), set()).add(seen.body)
    assert all(len(different) == 1 for different in bodies.values())
    for subject, (_, outcome) in FAILURES.items():
        assert world.receiver.sequences(subject) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        of_subject = [row for row in world.attempts() if row.subject == subject]
        assert of_subject == [
            AttemptRow(subject, sequence, number, outcome if number < 3 else "delivered")
            for sequence in (1, 2, 3)
            for number in (1, 2, 3)
        ]
    assert {lane.state for lane in world.lanes().values()} == {LaneState.IDLE}


@pytest.mark.rest
def test_each_attempt_has_its_own_signature(world: World, receiver: WebhookReceiver) -> None:
    world.add_endpoint(receiver.url, schedule_seconds=[3])
    receiver.script = FailFirst(1, answer(500))
    world.write("m_1")
    world.drain()
    receiver.script = lambda _seen: answer(200)
    while world.lanes()["m_1"].state is LaneState.DUE:
        world.drain()
    first, second = receiver.seen
    assert first.header("webhook-timestamp") != second.header("webhook-timestamp")
    assert first.header("webhook-signature") != second.header("webhook-signature")
    assert (first.body, first.header("webhook-id")) == (second.body, second.header("webhook-id"))


@pytest.mark.guarantee(7)
def test_rejected_entry_stops_its_lane_only(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    says = b'{"error":"no such merchant \x00 whsec_MfKQ9r8GKYqrTwjUPD8I"}'
    rejects = {"m_400": answer(400), "m_422": answer(422, says)}
    world.receiver.script = lambda seen: rejects.get(seen.subject, answer(200))
    world.write(*[*rejects, "m_200"] * 2)
    report = world.drain()
    assert report.counts == {"delivered": 2, "rejected": 2, "dead": 2}
    assert world.receiver.sequences("m_400") == world.receiver.sequences("m_422") == [1]
    states = {subject: lane.state for subject, lane in world.lanes().items()}
    stopped = dict.fromkeys(rejects, LaneState.STOPPED)
    assert states == {**stopped, "m_200": LaneState.IDLE}
    dead = world.db.execute(
        "SELECT sequence, d.key = e.key, d.created_at = e.created_at, reason::text, attempts"
        " FROM holdfast.dead_letter d JOIN holdfast.entry e USING (subject_id, sequence)"
    ).fetchall()
    assert dead == [(1, True, True, "rejected", 1)] * 2
    stored = one(world.db, "SELECT response FROM holdfast.attempt WHERE status = 422")
    assert stored == '{"error":"no such merchant \N{REPLACEMENT CHARACTER} ***"}'


def test_order_policy_passes_over_a_dead_entry(world: World) -> None:
    world.add_endpoint(world.receiver.url, order_policy="skip")
    world.receiver.script = lambda seen: answer(400 if seen.sequence == 2 else 200)
    world.write("m_1", "m_1", "m_1")
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 2, 3]
    assert world.lanes()["m_1"].state is LaneState.IDLE
    assert one(world.db, "SELECT sequence FROM holdfast.dead_letter") == 2


def test_entry_with_a_used_schedule_is_exhausted(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[0, 0, 0])
    world.receiver.script = lambda _seen: answer(500, b"out of order")
    world.write("m_1", "m_1")
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 1, 1, 1]
    letter = world.db.execute("SELECT reason::text, attempts, detail FROM holdfast.dead_letter")
    assert letter.fetchone() == ("exhausted", 4, "answered 500: out of order")


def test_retry_after_is_a_time_in_the_database(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[5, 30])
    world.receiver.script = lambda seen: answer(int(seen.subject), retry_after="600")
    world.write("429", "503", "409")
    world.drain()
    waits = world.db.execute(
        "SELECT extract(epoch FROM retry_at - finished_at)::float, retry_at = due_at"
        " FROM holdfast.attempt JOIN holdfast.lane USING (endpoint_id, subject_id)"
    ).fetchall()
    assert len(waits) == len(world.receiver.seen) == 3
    for seconds, same in waits:
        assert 600 <= seconds <= 660
        assert same is True


def test_gone_endpoint_is_disabled_losing_nothing(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    world.receiver.script = lambda _seen: answer(410)
    world.write("m_1", "m_1")
    world.drain()
    state, why = world.db.execute(
        "SELECT state::text, state_reason FROM holdfast.endpoint"
    ).fetchone() or (None, "")
    assert (state, "410" in why) == ("disabled", True)
    audit = world.db.execute("SELECT actor, action, target, reason FROM holdfast.operator_action")
    assert audit.fetchall() == [("dispatcher", "endpoint.disabled", "payouts", why)]
    assert one(world.db, "SELECT count(*) FROM holdfast.dead_letter") == 0
    assert world.lanes()["m_1"].state is LaneState.DUE
    world.receiver.script = lambda _seen: answer(200)
    world.write("m_1", "m_2")
    world.drain()
    assert world.receiver.sequences("m_1") == [1]
    with Overview.connect(world.dsn) as store:
        totals = store.totals()
        assert (totals["due_lanes"], totals["oldest_waiting_seconds"]) == (0, None)
    with Endpoints.connect(world.dsn) as endpoints:
        endpoints.set_endpoint_state("payouts", "active", "it is back")
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 1, 2, 3]
    assert world.receiver.sequences("m_2") == [1]
    assert [row.number for row in world.attempts() if row.subject == "m_1"] == [1, 2, 1, 1]


def test_missing_entry_is_reported_and_its_lane_kept(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_1", "m_1", "m_2")
    world.db.execute("DELETE FROM holdfast.entry WHERE sequence = 2")
    assert world.drain().counts == {"delivered": 2, "gaps": 1}
    assert world.receiver.sequences("m_1") == [1]
    assert world.receiver.sequences("m_2") == [1]
    assert world.lanes()["m_1"].state is LaneState.DUE


@pytest.mark.parametrize("state", ["paused", "disabled"])
def test_nothing_is_sent_to_an_endpoint_that_is_not_active(world: World, state: str) -> None:
    world.add_endpoint(state=state)
    world.write("m_1")
    assert world.drain().counts == {}
    assert world.lanes()["m_1"].state is LaneState.DUE
    assert world.receiver.seen == []


def test_two_endpoints_are_served_apart(world: World, receiver: WebhookReceiver) -> None:
    """One hangs in every request; the other gets everything, and its own types only."""
    receiver.script = lambda seen: webhooks.silence if seen.target == "/hangs" else answer(200)
    hangs = receiver.url.replace("/webhooks", "/hangs")
    world.add_endpoint(
        hangs, name="hangs", total_timeout_ms=300, connect_timeout_ms=300, schedule_seconds=[600]
    )
    healthy = world.add_endpoint(receiver.url, name="healthy", types=[BLOCK])
    subjects = [f"m_{n}" for n in range(10)]
    world.decisions.write_rows(
        [world.decisions.row(subject, type_) for subject in subjects for type_ in (BLOCK, RELEASE)]
    )
    report = world.drain(concurrency=4)
    assert report.counts == {"delivered": 10, "unknown": 10}
    delivered = [seen.at for seen in receiver.seen if seen.target == "/webhooks"]
    hung = sorted(seen.at for seen in receiver.seen if seen.target == "/hangs")
    assert max(delivered) < hung[-1]
    assert {lane.state for lane in world.lanes(healthy).values()} == {LaneState.IDLE}


def test_receiver_that_was_down_gets_everything_in_order(world: World) -> None:
    world.add_endpoint(schedule_seconds=[600] * 3)
    world.receiver.stop()
    world.write(*["m_1", "m_2"] * 3)
    assert world.drain().counts == {"failed": 2}
    errors = world.db.execute("SELECT DISTINCT outcome::text, status, error FROM holdfast.attempt")
    ((outcome, status, error),) = errors.fetchall()
    assert (outcome, status) == ("failed", None)
    assert "connect" in error.lower()
    world.receiver.start()
    world.make_due()
    assert world.drain().counts == {"delivered": 6}
    assert world.receiver.sequences("m_1") == world.receiver.sequences("m_2") == [1, 2, 3]


def test_receipt_is_kept_only_when_it_is_genuine(world: World, receiver: WebhookReceiver) -> None:
    world.add_endpoint(receiver.url)

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
    world.write("genuine", "forged")
    world.drain()
    kept = dict(
        world.db.execute(
            "SELECT name, receipt FROM holdfast.attempt"
            " JOIN holdfast.subject ON subject.id = subject_id"
        ).fetchall()
    )
    assert json.loads(kept["genuine"])["outcome"] == "applied"
    assert kept["forged"] is None


def test_drain_names_each_endpoint_left_waiting(world: World) -> None:
    names = ("paused", "broken", "held", "idle", "fine")
    ids = {name: world.add_endpoint(f"{world.receiver.url}/{name}", name=name) for name in names}
    world.db.execute("UPDATE holdfast.endpoint SET types = '{nothing}' WHERE name = 'idle'")
    world.db.execute(
        "UPDATE holdfast.endpoint SET state = 'paused', state_reason = 'moving house'"
        " WHERE name IN ('paused', 'idle')"
    )
    opened = one(
        world.db,
        "UPDATE holdfast.endpoint_pace SET breaker = 'open', breaker_reason = 'HTTP 500',"
        " breaker_until = now() + interval '5 min' WHERE endpoint_id = %s RETURNING breaker_until",
        [ids["broken"]],
    )
    held = one(
        world.db,
        "UPDATE holdfast.endpoint_pace SET held_until = now() + interval '23 h',"
        " held_by = 'answered 429 with Retry-After' WHERE endpoint_id = %s RETURNING held_until",
        [ids["held"]],
    )
    world.write("m_1")
    report = world.drain()
    assert report.counts == {"delivered": 1}
    assert report.waiting == {
        "paused": "it is paused (moving house) until"
        " `holdfast endpoint resume paused --reason TEXT`",
        "broken": f"its breaker is open until {rfc3339(opened)}, after HTTP 500",
        "held": f"its receiver answered 429 with Retry-After: it is held until {rfc3339(held)}",
    }


def test_unusable_endpoint_keeps_its_decisions(world: World) -> None:
    refs = [f"env:{SECRET}", "env:HOLDFAST_SECRET_NO"]
    world.add_endpoint(name="secret", secret_refs=refs)
    world.add_endpoint("http://127.0.0.1:1/a#b", name="url")
    world.add_endpoint(name="lease", total_timeout_ms=100_000)
    world.add_endpoint(name="fine")
    world.write("m_1")
    report = world.drain(lease_seconds=30)
    assert report.counts == {"delivered": 1}
    reasons = {"secret": "SECRET_NO is empty or not set", "url": "fragment", "lease": "too short"}
    assert report.waiting.keys() == reasons.keys()
    assert all(reason in report.waiting[name] for name, reason in reasons.items())
    assert one(world.db, "SELECT count(*) FROM holdfast.dead_letter") == 0
    waiting = "SELECT count(*) FROM holdfast.lane WHERE due_at <= now() AND attempt = 0"
    assert one(world.db, waiting) == 3


def test_attempt_is_a_span_linked_to_its_batch(world: World) -> None:
    world.add_endpoint(world.receiver.url)
    world.receiver.script = lambda _seen: answer(500 if len(world.receiver.seen) == 1 else 200)
    with tracing() as spans:
        writer = Writer(world.dsn, "test", suppress_repeats=False, first_batch=1)
        query_id = uuid4()
        writer.begin_run(query_id, uuid4())
        with batch_span("test", query_id, 1) as span:
            prepared = prepare(BatchInput(table(decision("m_1"), decision("m_1", 2))))
            writer.write(1, InDriver(prepared), traceparent=span.traceparent)
        writer.close()
        world.drain()
    batch, *deliveries = spans.ended
    assert [each.name for each in deliveries] == ["holdfast.deliver"] * 3
    results = [dict(each.attributes or {}) for each in deliveries]
    assert [
        (each["holdfast.attempt"], each["holdfast.outcome"], each["http.response.status_code"])
        for each in results
    ] == [(1, "failed", 500), (2, "delivered", 200), (1, "delivered", 200)]
    for each in deliveries:
        assert [link.context.trace_id for link in each.links] == [batch.context.trace_id]
        assert [link.context.span_id for link in each.links] == [batch.context.span_id]
        assert "m_1" not in each.to_json()
        assert world.receiver.url not in each.to_json()
    assert {seen.header("traceparent") for seen in world.receiver.seen} == {header(batch)}
