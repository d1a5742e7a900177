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
from tests.support.dispatch.delivery import (
    ALL,
    DELIVERED,
    add_days,
    applied,
    live_dispatcher,
    make_due,
    progress,
)
from tests.support.dispatch.dispatching import LOOPBACK, drain
from tests.support.dispatch.sender import key_of, receipt
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.world import World

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
def test_answer_that_names_another_key_says_nothing_of_ours(world: World, naming: str) -> None:
    world.add_endpoint(world.receiver.url)
    world.write("m_1", "m_1")

    def script(seen: Seen) -> Behaviour:
        first = seen is world.receiver.seen[0]
        return NAMING[naming] if first else said(seen.header("webhook-id"))

    world.receiver.script = script
    counts = world.drain().counts
    assert {name: counts[name] for name in ("unknown", "delivered")} == {
        "unknown": 1,
        "delivered": 2,
    }
    assert counts["other_keys"] == 1
    tried = rows(
        world.db, "SELECT status, error, receipt FROM holdfast.attempt WHERE outcome='unknown'"
    )
    ((status, error, proof),) = tried
    assert (status, proof) == (422 if naming == "error" else 200, None)
    assert OTHER in error
    first, again, _ = world.receiver.seen
    assert (first.header("webhook-id"), first.body) == (again.header("webhook-id"), again.body)
    assert again.connection != first.connection
    assert "answer_misread" not in world.holdfast("check").stdout


def test_answer_with_another_key_is_shown(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[3600])
    world.write("m_1")
    world.receiver.script = lambda _: said(OTHER)
    world.drain()
    key = world.receiver.seen[0].header("webhook-id")
    for command in ("why", "trace"):
        shown = world.holdfast(command, key).stdout
        assert OTHER in shown
        assert "unknown" in shown


def test_always_another_key_ends_as_dead_letter(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[0, 0])
    world.write("m_1")
    world.receiver.script = lambda _: said(OTHER)
    world.drain()
    assert len(world.receiver.seen) == 3
    ((reason, detail),) = rows(world.db, "SELECT reason::text, detail FROM holdfast.dead_letter")
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
def test_answer_that_names_no_key_of_ours_is_a_delivery(world: World, content: bytes) -> None:
    world.add_endpoint(world.receiver.url)
    world.write("m_1")
    world.receiver.script = lambda _: answer(200, content)
    assert world.drain().counts == {"delivered": 1}


def test_refused_address_costs_entries_nothing(world: World) -> None:
    """Twenty subjects, a breaker that failures never open, a schedule of one step."""
    world.add_endpoint(
        world.receiver.url.replace("127.0.0.1", "localhost"),
        allow_cidrs=[],
        concurrency=1,
        schedule_seconds=[0],
        order_policy="skip",
    )
    subjects = [f"m_{n}" for n in range(20)]
    world.write(*subjects)
    report = world.drain()
    assert rows(world.db, "SELECT * FROM holdfast.dead_letter") == []
    assert (report.counts["refused"], world.receiver.connections) == (1, 0)
    ((state, reason),) = rows(
        world.db, "SELECT breaker::text, breaker_reason FROM holdfast.endpoint_pace"
    )
    assert state == "open"
    assert "127.0.0.1" in reason or "::1" in reason
    assert {lane.state for lane in world.lanes().values()} == {LaneState.DUE}
    world.db.execute(
        "UPDATE holdfast.endpoint SET allow_cidrs = %s::cidr[]", [[LOOPBACK, "::1/128"]]
    )
    world.db.execute("UPDATE holdfast.endpoint_pace SET breaker = 'closed', breaker_until = NULL")
    world.make_due()
    failed: set[str] = set()

    def fail_once(seen: Seen) -> Behaviour:
        status = 200 if seen.subject in failed else 500
        failed.add(seen.subject)
        return answer(status)

    world.receiver.script = fail_once
    assert world.drain().counts == {"failed": 20, "delivered": 20}


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
def test_putting_off_uses_no_step_of_the_schedule(world: World) -> None:
    """Nor of a replay's, which starts the schedule anew."""
    world.add_endpoint(world.receiver.url, schedule_seconds=[0])
    world.write("m_1")
    world.receiver.script = PutOff(4)
    assert sent_again(world.dsn, world.db) == {"throttled": 4, "failed": 1, "delivered": 1}
    id_ = applied(world.dsn, DELIVERED)
    assert sent_again(world.dsn, world.db) == {"throttled": 4, "failed": 1, "delivered": 1}
    assert progress(world.dsn, id_)["delivered"] == 1
    assert [row.number for row in world.attempts()] == list(range(1, 13))


def _needs(dsn: str) -> dict[str, int]:
    status = json.loads(holdfast("status", "--json", dsn=dsn).stdout)["needs"]
    return {need["kind"]: need["count"] for need in status}


def test_unreasoned_stale_needs_a_person_for_a_day(world: World) -> None:
    """As of a receiver that was restored, or that got a forged sequence."""
    world.add_endpoint(world.receiver.url)
    world.write("m_fine", "m_stale", "m_stale")
    world.receiver.script = lambda seen: said(
        seen.header("webhook-id"), "stale" if seen.subject == "m_stale" else "applied"
    )
    assert world.drain().counts == {"delivered": 3}
    live_dispatcher(world.db)
    assert _needs(world.dsn) == {"stale_answers": 2}
    status = world.holdfast("status", code=ExitCode.DEGRADED)
    command = "holdfast receipts --endpoint payouts"
    assert command in status.stdout
    shown = world.holdfast(*command.split()[1:], "--json", code=ExitCode.DEGRADED)
    assert shown.json["findings"]["stale_there"] == 2
    add_days(world.db, 3)  # in the first hour of a day, 25 hours ago is two days back
    world.db.execute("UPDATE holdfast.attempt SET finished_at = finished_at - interval '25 hours'")
    assert _needs(world.dsn) == {}


@pytest.mark.rest
def test_explained_stale_answer_needs_no_attention(world: World) -> None:
    world.add_endpoint(world.receiver.url, order_policy="skip", schedule_seconds=[0])
    world.write("m_1", "m_1")

    def behind(seen: Seen) -> Behaviour:
        return answer(500) if seen.sequence == 1 else said(seen.header("webhook-id"))

    world.receiver.script = behind
    assert world.drain().counts == {"failed": 2, "dead": 1, "delivered": 1}
    world.receiver.script = lambda seen: said(seen.header("webhook-id"), "stale")
    applied(world.dsn, ALL)
    assert world.drain().counts["delivered"] == 2
    assert "stale_answers" not in _needs(world.dsn)
