"""What signals do to a dispatcher that is busy, and what its log never says."""

import secrets
import signal
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import attempts, lanes
from tests.support.dispatch.dispatching import SECRET, add_endpoint, dispatching
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Gate, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

MANY = [f"m_{n}" for n in range(500)]
BUSY = ("--concurrency", "500", "--claim-lanes", "500")


@pytest.mark.usefixtures("secret_dir")
def test_sighup_loads_at_once_and_says_so(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(secret_text())
    add_endpoint(db, receiver.url, secret_refs=[f"file:{secret}"])
    with dispatching(dsn, tmp_path / "log") as running:
        running.says("dispatcher.started")
        for turn in (1, 2):
            running.send(signal.SIGHUP)
            eventually(lambda turn=turn: len(running.lines("reloaded")) == turn)  # type: ignore[misc]  # bound
        assert [line["endpoints"] for line in running.lines("reloaded")] == [1, 1]
        secret.unlink()
        running.send(signal.SIGHUP)
        eventually(lambda: len(running.lines("reloaded")) == 3)
        assert running.lines("reloaded")[-1]["endpoints"] == 0
        decisions.write("m_1")
        secret.write_text(secret_text())
        running.send(signal.SIGHUP)
        eventually(lambda: receiver.sequences("m_1") == [1])
        assert secret_text() not in running.text()


def test_sigterm_with_500_in_flight_settles_all_and_charges_nothing_unsent(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(
        db, receiver.url, concurrency=500, connect_timeout_ms=20_000, total_timeout_ms=60_000
    )
    gate = Gate(answer(200))
    receiver.script = lambda _seen: gate
    decisions.write(*MANY * 2)
    with dispatching(dsn, tmp_path / "log", *BUSY) as running:
        eventually(lambda: len(receiver.seen) == 500)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        gate.open()
        assert running.ends() == ExitCode.OK, running.text()
    assert len(receiver.seen) == 500
    rows = attempts(db)
    assert Counter((row.sequence, row.number, row.outcome) for row in rows) == {
        (1, 1, "delivered"): 500
    }
    assert {(lane.delivered, lane.attempt, lane.token) for lane in lanes(db).values()} == {
        (1, 0, None)
    }


def test_second_sigterm_with_500_in_flight_books_what_was_sent_and_nothing_else(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(
        db, receiver.url, concurrency=500, connect_timeout_ms=20_000, total_timeout_ms=60_000
    )
    receiver.script = lambda _seen: webhooks.silence
    decisions.write(*MANY * 2)
    with dispatching(dsn, tmp_path / "log", *BUSY) as running:
        eventually(lambda: len(receiver.seen) >= 400)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()
    rows = attempts(db)
    assert {row.outcome for row in rows} == {"unknown"}
    assert {(row.sequence, row.number) for row in rows} == {(1, 1)}
    arrived = {seen.subject for seen in receiver.seen}
    recorded = {row.subject for row in rows}
    assert arrived <= recorded
    for subject, lane in lanes(db).items():
        assert lane.token is None
        assert (lane.delivered, lane.attempt) == (0, 1 if subject in recorded else 0)


def test_nothing_secret_is_in_the_log_whatever_goes_wrong(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    """Bodies, answers, the secret, a signature that the receiver echoes, the DSN's password."""
    add_endpoint(db, receiver.url, order_policy="skip", schedule_seconds=[0, 0])
    add_endpoint(db, "http://127.0.0.1:1/", name="down", schedule_seconds=[0])

    async def echo(seen: webhooks.Seen, wire: webhooks.Wire) -> None:
        said = seen.header("webhook-signature") + secret_text() + "canary_answer"
        await wire.send(webhooks.response(500, said.encode(), retry_after=said))

    receiver.script = lambda _seen: echo
    decisions.write("m_1", data={"merchant_id": "m_1", "exposure_minor": 777_888_999})
    name = f"holdfast_test_app_{secrets.token_hex(4)}"
    user = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'hunter2'").format(user))
    db.execute(sql.SQL("GRANT holdfast_dispatcher TO {}").format(user))
    secured = make_conninfo(dsn, user=name, password="hunter2")
    environment = {SECRET: secret_text()}
    try:
        with dispatching(secured, tmp_path / "log", "--drain", environment=environment) as running:
            assert running.ends() == ExitCode.OK, running.text()
    finally:
        db.execute(sql.SQL("DROP ROLE {}").format(user))
    text = running.text()
    assert running.lines("attempt")
    assert running.lines("dead_letter")
    for canary in ("777888999", "hunter2", "canary_answer", secret_text(), "whsec_", "v1,"):
        assert canary not in text, canary


def test_dispatcher_killed_in_a_heartbeat_leaves_no_heartbeat(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    with dispatching(dsn, tmp_path / "log", failpoints="D12=kill") as running:
        assert running.ends() == -signal.SIGKILL
    assert db.execute("SELECT count(*) FROM holdfast.dispatcher_instance").fetchone() == (0,)
