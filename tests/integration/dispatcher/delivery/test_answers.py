"""What an answer, or a refusal of our own, counts for: whose it is, and what it uses up."""

import itertools
import json
from collections import Counter
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.aging import add_days
from tests.support.dispatch.delivery import attempts, lanes, live_dispatcher, make_due
from tests.support.dispatch.dispatching import LOOPBACK, add_endpoint, drain
from tests.support.dispatch.replaying import ALL, DELIVERED, applied, progress
from tests.support.dispatch.sender import key_of, receipt
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.job.decisions import Decisions

OTHER = key_of("m_other", 1)


def said(key: str, outcome: str = "applied") -> Behaviour:
    """The answer of a receiver that dealt with `key`, with a genuine receipt."""
    content = {"key": key, "outcome": outcome, "applied_at": "2026-11-02T12:15:01Z"}
    return answer(200, json.dumps({**content, "receipt": receipt(content)}).encode())


def rows(db: psycopg.Connection, query: str) -> list[Any]:
    return db.execute(query.encode()).fetchall()


NAMING = {
    "receipt": said(OTHER),
    "key": answer(200, json.dumps({"key": OTHER}).encode()),
    "nested": answer(200, json.dumps({"receipt": {"key": OTHER}}).encode()),
    "error": answer(422, json.dumps({"key": OTHER, "outcome": "conflict"}).encode()),
    "capitals": answer(200, json.dumps({"key": f" {OTHER.upper()} "}).encode()),
    "cut": answer(200, json.dumps({"key": OTHER, "more": "x" * 20_000}).encode()),
    "damaged": answer(200, b'{"key":"%s","name":"\xff"}' % OTHER.encode()),
    "utf-16": answer(200, json.dumps({"key": OTHER}).encode("utf-16")),
    "byte order mark": answer(200, json.dumps({"key": OTHER}).encode("utf-8-sig")),
}


@pytest.mark.guarantee(6)
@pytest.mark.parametrize("naming", NAMING)
def test_answer_that_names_another_key_says_nothing_of_ours(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    naming: str,
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_1")

    def script(seen: Seen) -> Behaviour:
        first = seen is receiver.seen[0]
        return NAMING[naming] if first else said(seen.header("webhook-id"))

    receiver.script = script
    counts = drain(dsn).counts
    assert {name: counts[name] for name in ("unknown", "delivered")} == {
        "unknown": 1,
        "delivered": 2,
    }
    assert counts["other_keys"] == 1
    tried = rows(db, "SELECT status, error, receipt FROM holdfast.attempt WHERE outcome='unknown'")
    ((status, error, proof),) = tried
    assert (status, proof) == (422 if naming == "error" else 200, None)
    assert OTHER in error
    first, again, _ = receiver.seen
    assert (first.header("webhook-id"), first.body) == (again.header("webhook-id"), again.body)
    assert again.connection != first.connection
    assert "answer_misread" not in holdfast("check", dsn=dsn).stdout


def test_answer_that_names_another_key_is_shown_by_why_and_trace(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[3600])
    decisions.write("m_1")
    receiver.script = lambda _: said(OTHER)
    drain(dsn)
    key = receiver.seen[0].header("webhook-id")
    for command in ("why", "trace"):
        shown = holdfast(command, key, dsn=dsn).stdout
        assert OTHER in shown
        assert "unknown" in shown


def test_receiver_that_always_names_another_key_ends_as_a_dead_letter(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[0, 0])
    decisions.write("m_1")
    receiver.script = lambda _: said(OTHER)
    drain(dsn)
    assert len(receiver.seen) == 3
    ((reason, detail),) = rows(db, "SELECT reason::text, detail FROM holdfast.dead_letter")
    assert reason == "exhausted"
    assert OTHER in detail


@pytest.mark.rest
@pytest.mark.parametrize(
    "content",
    [
        *(b'{"key": "invoice-7"}', b'{"key": 7}', b'["key"]', b'{"id": 1}', b'{"key": ', b"key"),
        json.dumps([{"key": OTHER}]).encode(),
        json.dumps({"earlier": {"key": OTHER}}).encode(),
    ],
)
def test_answer_that_names_no_key_of_ours_is_a_delivery(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    content: bytes,
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1")
    receiver.script = lambda _: answer(200, content)
    assert drain(dsn).counts == {"delivered": 1}


def test_address_that_is_refused_costs_its_entries_nothing(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
) -> None:
    """Twenty subjects, a breaker that failures never open, a schedule of one step."""
    add_endpoint(
        db,
        receiver.url.replace("127.0.0.1", "localhost"),
        allow_cidrs=[],
        concurrency=1,
        schedule_seconds=[0],
        order_policy="skip",
    )
    subjects = [f"m_{n}" for n in range(20)]
    decisions.write(*subjects)
    report = drain(dsn)
    assert rows(db, "SELECT * FROM holdfast.dead_letter") == []
    assert (report.counts["refused"], receiver.connections) == (1, 0)
    ((state, reason),) = rows(
        db, "SELECT breaker::text, breaker_reason FROM holdfast.endpoint_pace"
    )
    assert state == "open"
    assert "127.0.0.1" in reason or "::1" in reason
    assert {lane.state for lane in lanes(db).values()} == {LaneState.DUE}
    db.execute("UPDATE holdfast.endpoint SET allow_cidrs = %s::cidr[]", [[LOOPBACK, "::1/128"]])
    db.execute("UPDATE holdfast.endpoint_pace SET breaker = 'closed', breaker_until = NULL")
    make_due(db)
    failed: set[str] = set()

    def fail_once(seen: Seen) -> Behaviour:
        status = 200 if seen.subject in failed else 500
        failed.add(seen.subject)
        return answer(status)

    receiver.script = fail_once
    assert drain(dsn).counts == {"failed": 20, "delivered": 20}


class PutOff:
    """Puts each entry off so often, fails it once, then takes it; and so again."""

    def __init__(self, times: int) -> None:
        later = [answer(429, retry_after="1"), answer(503, retry_after="1")]
        self._turns = itertools.cycle([*(later * times)[:times], answer(500), None])

    def __call__(self, seen: Seen) -> Behaviour:
        return next(self._turns) or said(seen.header("webhook-id"))


def let_time_pass(db: psycopg.Connection) -> None:
    """Let every hold be over and every retry be due."""
    db.execute("UPDATE holdfast.endpoint_pace SET held_until = now() WHERE held_until > now()")
    db.execute("UPDATE holdfast.replay_item SET due_at = now() WHERE due_at > now()")
    make_due(db)


def sent_again(dsn: str, db: psycopg.Connection) -> Counter[str]:
    """Drain again and again, letting the time pass that the receiver asks for."""
    counts: Counter[str] = Counter()
    for _ in range(9):
        counts.update(drain(dsn).counts)
        let_time_pass(db)
    return +counts


@pytest.mark.rest
def test_receiver_that_puts_an_entry_off_uses_up_no_step_of_its_schedule(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    """Nor of a replay's, which starts the schedule anew."""
    add_endpoint(db, receiver.url, schedule_seconds=[0])
    decisions.write("m_1")
    receiver.script = PutOff(4)
    assert sent_again(dsn, db) == {"throttled": 4, "failed": 1, "delivered": 1}
    id_ = applied(dsn, DELIVERED)
    assert sent_again(dsn, db) == {"throttled": 4, "failed": 1, "delivered": 1}
    assert progress(dsn, id_)["delivered"] == 1
    assert [row.number for row in attempts(db)] == list(range(1, 13))


def _needs(dsn: str) -> dict[str, int]:
    found = json.loads(holdfast("status", "--json", dsn=dsn).stdout)["needs"]
    return {need["kind"]: need["count"] for need in found}


def test_decision_that_is_called_stale_without_a_reason_needs_a_person_for_a_day(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    """As of a receiver that was restored, or that got a forged sequence."""
    add_endpoint(db, receiver.url)
    decisions.write("m_fine", "m_stale", "m_stale")
    receiver.script = lambda seen: said(
        seen.header("webhook-id"), "stale" if seen.subject == "m_stale" else "applied"
    )
    assert drain(dsn).counts == {"delivered": 3}
    live_dispatcher(db)
    assert _needs(dsn) == {"stale_answers": 2}
    status = holdfast("status", dsn=dsn)
    assert status.returncode == ExitCode.DEGRADED
    command = "holdfast receipts --endpoint payouts"
    assert command in status.stdout
    shown = holdfast(*command.split()[1:], "--json", dsn=dsn)
    assert shown.returncode == ExitCode.DEGRADED
    assert json.loads(shown.stdout)["findings"]["stale_there"] == 2
    add_days(db, 3)  # in the first hour of a day, 25 hours ago is two days back
    db.execute("UPDATE holdfast.attempt SET finished_at = finished_at - interval '25 hours'")
    assert _needs(dsn) == {}


@pytest.mark.rest
def test_stale_answer_that_a_later_decision_or_the_receipt_explains_needs_no_attention(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, order_policy="skip", schedule_seconds=[0])
    decisions.write("m_1", "m_1")

    def behind(seen: Seen) -> Behaviour:
        return answer(500) if seen.sequence == 1 else said(seen.header("webhook-id"))

    receiver.script = behind
    assert drain(dsn).counts == {"failed": 2, "dead": 1, "delivered": 1}
    receiver.script = lambda seen: said(seen.header("webhook-id"), "stale")
    applied(dsn, ALL)
    assert drain(dsn).counts["delivered"] == 2
    assert "stale_answers" not in _needs(dsn)
