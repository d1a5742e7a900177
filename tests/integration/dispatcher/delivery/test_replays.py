"""Replays that a dispatcher carries out, on a real database and a real receiver."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from holdfast.dispatcher.delivery.store.replaying import REPLAYS
from holdfast.dispatcher.operators.replays.rules import ReplayFilter
from holdfast.dispatcher.operators.replays.store import Replays
from tests.support.dispatch.delivery import AttemptRow, attempts, lanes
from tests.support.dispatch.dispatching import add_endpoint, dispatching, drain
from tests.support.dispatch.replaying import ALL, DEAD, DELIVERED, WAITING, applied, progress
from tests.support.dispatch.webhooks import Gate, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

SERVE = ("--lease-seconds", "10")
SLOW = ReplayFilter(endpoint="slow")


def test_delivered_entry_arrives_once_more_with_the_same_bytes_and_key(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_2", "m_1")
    drain(dsn)
    first = {(each.subject, each.sequence): each for each in receiver.seen}
    before = lanes(db)
    id_ = applied(dsn, DELIVERED)
    drain(dsn)
    again = receiver.seen[3:]
    assert Counter((each.subject, each.sequence) for each in again) == Counter(first.keys())
    assert [each.sequence for each in again if each.subject == "m_1"] == [1, 2]
    for each in again:
        same = first[each.subject, each.sequence]
        assert (each.body, each.header("webhook-id")) == (same.body, same.header("webhook-id"))
    assert sorted(attempts(db)) == [
        AttemptRow(*who, number, "delivered")
        for who in (("m_1", 1), ("m_1", 2), ("m_2", 1))
        for number in (1, 2)
    ]
    assert progress(dsn, id_) == {
        "state": "applied",
        "items": 3,
        "settled": 3,
        "sent": 3,
        "delivered": 3,
    }
    assert lanes(db) == before


def test_released_dead_letter_lets_its_lane_go_on_with_a_full_schedule(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[0])
    receiver.script = lambda _: answer(500)
    decisions.write("m_1", "m_1")
    drain(dsn)
    assert [(each.number, each.outcome) for each in attempts(db)] == [(1, "failed"), (2, "failed")]
    id_ = applied(dsn, DEAD)
    drain(dsn)
    # Two further attempts: the schedule started anew. Then it is a dead letter again.
    assert [each.number for each in attempts(db)] == [1, 2, 3, 4]
    receiver.script = lambda _: answer(200)
    applied(dsn, DEAD)
    drain(dsn)
    assert attempts(db)[4:] == [
        AttemptRow("m_1", 1, 5, "delivered"),
        AttemptRow("m_1", 2, 1, "delivered"),
    ]
    assert progress(dsn, id_) == {"state": "applied", "items": 1, "settled": 1, "released": 1}
    resolved = db.execute("SELECT resolution::text, resolved_by FROM holdfast.dead_letter")
    assert {resolution for resolution, _ in resolved} == {"redelivered"}


def test_dead_letter_that_its_lane_passed_is_sent_next_to_the_lane_and_resolved(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, order_policy="skip")
    receiver.script = lambda seen: answer(400 if seen.sequence == 1 else 200)
    decisions.write("m_1", "m_1")
    drain(dsn)
    refused = applied(dsn, DEAD)
    drain(dsn)
    assert progress(dsn, refused)["failed"] == 1
    with Replays.connect(dsn) as store:
        (item,) = store.items(refused, limit=5)
    assert (item["outcome"], item["detail"]) == ("rejected", "answered 400")
    receiver.script = lambda _: answer(200)
    applied(dsn, DEAD)
    drain(dsn)
    assert [each[2:] for each in attempts(db) if each.sequence == 1] == [
        (1, "rejected"),
        (2, "rejected"),
        (3, "delivered"),
    ]
    (letter,) = db.execute("SELECT resolution::text FROM holdfast.dead_letter").fetchall()
    assert letter == ("redelivered",)


def test_retry_that_is_brought_forward_is_one_attempt_with_the_next_number(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[3600] * 3)
    receiver.script = lambda _: answer(500)
    decisions.write("m_1")
    drain(dsn)
    hurried = applied(dsn, WAITING)
    drain(dsn)
    assert attempts(db) == [AttemptRow("m_1", 1, 1, "failed"), AttemptRow("m_1", 1, 2, "failed")]
    # A retry that is due by itself and one that a person asks for are one attempt.
    db.execute("UPDATE holdfast.lane SET due_at = now()")
    applied(dsn, WAITING)
    receiver.script = lambda _: answer(200)
    drain(dsn)
    assert attempts(db)[2:] == [AttemptRow("m_1", 1, 3, "delivered")]
    assert len(receiver.seen) == 3
    assert progress(dsn, hurried) == {"state": "applied", "items": 1, "settled": 1, "hastened": 1}


def test_item_is_tried_by_the_schedule_and_then_settled_with_what_was_said(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[0, 0])
    decisions.write("m_1")
    drain(dsn)
    receiver.script = lambda _: answer(500, b"not today")
    id_ = applied(dsn, DELIVERED)
    drain(dsn)
    assert [each.number for each in attempts(db)] == [1, 2, 3, 4]
    with Replays.connect(dsn) as store:
        (item,) = store.items(id_, limit=5)
    assert (item["outcome"], item["attempt"]) == ("failed", 3)
    assert item["detail"] == "answered 500: not today"
    assert progress(dsn, id_)["state"] == "applied"
    assert db.execute("SELECT count(*) FROM holdfast.dead_letter").fetchone() == (0,)


def test_items_wait_while_their_endpoint_is_paused_and_later_ones_behind_a_failed_one(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    endpoint = add_endpoint(db, receiver.url, schedule_seconds=[3600])
    decisions.write("m_1", "m_1")
    drain(dsn)
    id_ = applied(dsn, DELIVERED)
    db.execute("UPDATE holdfast.endpoint SET state = 'paused' WHERE id = %s", [endpoint])
    drain(dsn)
    assert progress(dsn, id_) == {"state": "applying", "items": 2, "waiting": 2}
    db.execute("UPDATE holdfast.endpoint SET state = 'active' WHERE id = %s", [endpoint])
    receiver.script = lambda _: answer(500)
    drain(dsn)
    assert progress(dsn, id_) == {
        "state": "applying",
        "items": 2,
        "waiting": 2,
        "retrying": 1,
    }
    assert [each.sequence for each in receiver.seen] == [1, 2, 1]


def test_two_dispatchers_keep_a_replays_rate_and_live_decisions_overtake_it(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write(*(f"m_{number}" for number in range(600)))
    drain(dsn)
    receiver.seen.clear()
    id_ = applied(dsn, DELIVERED, rate=200)
    with (
        dispatching(dsn, tmp_path / "one", *SERVE) as process,
        dispatching(dsn, tmp_path / "other", *SERVE),
    ):
        process.until(lambda: len(receiver.seen) >= 100)
        decisions.write("m_live")
        process.until(lambda: progress(dsn, id_)["state"] == "applied")
    place = [each.subject for each in receiver.seen].index("m_live")
    assert place < 400
    times = sorted(each.at for each in receiver.seen if each.subject != "m_live")
    assert len(times) == 600
    # In any second, the rate and the burst of a tenth of it; a request may take a moment longer.
    most = max(sum(at <= other < at + 1 for other in times) for at in times)
    assert 150 < most <= 250
    assert Counter(each.number for each in attempts(db)) == {1: 601, 2: 600}


def test_cancelled_replay_begins_nothing_and_books_what_is_in_flight(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url, concurrency=2, total_timeout_ms=10_000)
    decisions.write("m_1", "m_2", "m_3")
    drain(dsn)
    gate = Gate(answer(200))
    receiver.script = lambda _: gate
    id_ = applied(dsn, DELIVERED)
    with dispatching(dsn, tmp_path / "log", "--lease-seconds", "20") as process:
        process.until(lambda: len(receiver.seen) == 4)
        with Replays.connect(dsn) as store:
            cancelled = store.cancel(id_, "a mistake")
        assert (cancelled["state"], cancelled["progress"]["in_flight"]) == ("cancelled", 1)
        gate.open()
        process.until(lambda: progress(dsn, id_).get("delivered") == 1)
        decisions.write("m_4")
        process.until(lambda: "m_4" in {each.subject for each in receiver.seen})
    assert progress(dsn, id_) == {
        "state": "cancelled",
        "items": 3,
        "settled": 1,
        "sent": 1,
        "delivered": 1,
        "waiting": 2,
    }
    assert len(receiver.seen) == 5


def test_replay_waits_for_an_open_breaker_and_its_probe_may_be_an_item(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, breaker_threshold=2, slow_start_seconds=1)
    decisions.write("m_1", "m_2", "m_3")
    drain(dsn)
    receiver.script = lambda _: answer(500)
    id_ = applied(dsn, DELIVERED)
    drain(dsn)
    assert db.execute("SELECT breaker::text FROM holdfast.endpoint_pace").fetchone() == ("open",)
    assert progress(dsn, id_)["state"] == "applying"
    receiver.script = lambda _: answer(200)
    db.execute("UPDATE holdfast.endpoint_pace SET breaker_until = now()")
    drain(dsn)
    assert progress(dsn, id_)["delivered"] == 3
    numbers = {
        name: [each.number for each in attempts(db) if each.subject == name] for name in lanes(db)
    }
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())


def test_entry_that_is_no_longer_stored_is_settled_in_words(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1")
    drain(dsn)
    id_ = applied(dsn, DELIVERED)
    db.execute("DELETE FROM holdfast.entry")
    drain(dsn)
    with Replays.connect(dsn) as store:
        (item,) = store.items(id_, limit=5)
    assert (item["outcome"], item["detail"]) == (None, "not sent: its entry is no longer stored")
    assert progress(dsn, id_)["state"] == "applied"
    assert len(receiver.seen) == 1


def test_key_that_the_receiver_may_have_forgotten_is_sent_only_where_a_person_said_so(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    receiver.script = lambda seen: answer(400 if seen.subject == "m_dead" else 200)
    decisions.write("m_ok", "m_dead")
    drain(dsn)
    careful = applied(dsn, DELIVERED)
    db.execute("UPDATE holdfast.endpoint_pace SET key_window_seconds=0, key_window_seen_at=now()")
    drain(dsn)
    with Replays.connect(dsn) as store:
        (item,) = store.items(careful, limit=5)
    assert (item["outcome"], len(receiver.seen)) == ("refused", 2)
    assert "longer ago than the receiver keeps keys" in item["detail"]
    receiver.script = lambda _: answer(200)
    waived = applied(dsn, ALL, outside_window=True)
    drain(dsn)
    done = progress(dsn, waived)
    assert (done["released"], done["delivered"], len(receiver.seen)) == (1, 1, 4)
    (letter,) = db.execute("SELECT window_waived FROM holdfast.dead_letter").fetchall()
    assert letter == (True,)


def test_all_kinds_of_items_of_one_replay_are_done_together(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[3600] * 3)
    said = {"m_ok": 200, "m_dead": 400, "m_retry": 500}
    receiver.script = lambda seen: answer(said[seen.subject])
    decisions.write(*said)
    drain(dsn)
    id_ = applied(dsn, ALL)
    receiver.script = lambda _: answer(200)
    drain(dsn)
    eventually(lambda: progress(dsn, id_)["state"] == "applied")
    assert progress(dsn, id_) == {
        "state": "applied",
        "items": 3,
        "settled": 3,
        "released": 1,
        "hastened": 1,
        "sent": 1,
        "delivered": 1,
    }
    assert sorted(attempts(db))[1::2] == [
        AttemptRow(name, 1, 2, "delivered") for name in ("m_dead", "m_ok", "m_retry")
    ]


def test_replays_that_wait_hold_up_no_later_one(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, f"{receiver.url}slow", schedule_seconds=[36_000] * 5, name="slow")
    add_endpoint(db, receiver.url)
    decisions.write(*(f"m_{n}" for n in range(REPLAYS + 1)))
    drain(dsn)
    receiver.script = lambda seen: answer(503 if seen.target.endswith("slow") else 200)
    slow = [applied(dsn, replace(SLOW, subject=f"m_{n}")) for n in range(REPLAYS)]
    drain(dsn)
    assert {progress(dsn, each)["retrying"] for each in slow} == {1}
    later = applied(dsn, replace(DELIVERED, subject=f"m_{REPLAYS}"))
    drain(dsn)
    assert progress(dsn, later) == {
        "state": "applied",
        "items": 1,
        "settled": 1,
        "sent": 1,
        "delivered": 1,
    }


def test_what_was_tried_for_a_cancelled_replay_is_settled_as_what_it_came_to(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[36_000] * 5)
    decisions.write("m_1", "m_1")
    drain(dsn)
    receiver.script = lambda _: answer(503)
    id_ = applied(dsn, DELIVERED)
    drain(dsn)
    with Replays.connect(dsn) as store:
        store.cancel(id_, "enough")
    assert progress(dsn, id_) == {
        "state": "cancelled",
        "items": 2,
        "settled": 1,
        "sent": 1,
        "failed": 1,
        "waiting": 1,
    }
