"""`holdfast dispatch` as a person runs it: how it ends and what it says."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import attempts, lanes
from tests.support.dispatch.dispatching import SECRET, add_endpoint, dispatching
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Gate, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest


def test_drain_delivers_everything_and_logs_each_attempt_once(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1", "m_2", "m_2")
    done = holdfast("dispatch", "--drain", dsn=dsn, environment={SECRET: secret_text()})
    assert done.returncode == ExitCode.OK, done.stderr
    assert receiver.sequences("m_2") == [1, 2]
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    logged = [line for line in lines if line["what"] == "attempt"]
    assert len(logged) == 3
    assert {(line["outcome"], line["status"], line["attempt"]) for line in logged} == {
        ("delivered", 200, 1)
    }
    assert secret_text() not in done.stderr
    assert "v1," not in done.stderr


def test_drain_says_which_endpoint_waits_and_why(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, secret_refs=["env:HOLDFAST_SECRET_ABSENT"])
    decisions.write("m_1")
    done = holdfast("dispatch", "--drain", dsn=dsn)
    assert done.returncode == ExitCode.DEGRADED
    assert "payouts" in done.stderr.splitlines()[-1]
    assert "HOLDFAST_SECRET_ABSENT" in done.stderr.splitlines()[-1]
    assert receiver.seen == []


def test_drain_says_that_an_endpoint_which_answered_410_still_has_something(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, concurrency=1)
    receiver.script = lambda _: answer(410)
    decisions.write("m_1", "m_2", "m_3")
    for _ in range(2):
        done = holdfast("dispatch", "--drain", dsn=dsn, environment={SECRET: secret_text()})
        assert done.returncode == ExitCode.DEGRADED, done.stderr
        assert "payouts" in done.stderr.splitlines()[-1]
        assert "disabled" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--concurrency", "0"], "concurrency"),
        (["--lease-seconds", "soon"], "soon"),
        (["--lease-seconds", "1"], "lease"),
        (["--dsn", "nonsense"], "DSN"),
    ],
)
def test_senseless_option_is_one_line(dsn: str, arguments: list[str], complaint: str) -> None:
    done = holdfast("dispatch", *arguments, dsn=dsn)
    assert done.returncode == ExitCode.USAGE
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_schema_that_is_missing_or_old_is_one_line(
    make_database: Callable[[str | None], str], dsn: str, db: psycopg.Connection
) -> None:
    db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
    for database, complaint in ((make_database(None), "holdfast db upgrade"), (dsn, "0001")):
        done = holdfast("dispatch", dsn=database)
        assert done.returncode == ExitCode.FAILED
        assert complaint in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_database_that_is_away_is_one_line_without_a_password() -> None:
    done = holdfast("dispatch", dsn="postgresql://app:hunter2@127.0.0.1:1/x")
    assert done.returncode == ExitCode.FAILED
    assert "cannot be used" in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_sigterm_finishes_what_is_in_flight_and_gives_the_rest_back(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url, total_timeout_ms=20_000)
    gate = Gate(answer(200))
    receiver.script = lambda _seen: gate
    decisions.write("m_1", "m_1", "m_2")
    with dispatching(dsn, tmp_path / "log") as running:
        eventually(lambda: len(receiver.seen) == 2)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        decisions.write("m_3")
        gate.open()
        assert running.ends() == ExitCode.OK, running.text()
    assert receiver.sequences("m_1") == [1]
    found = lanes(db)
    assert found.keys() == {"m_1", "m_2"}
    assert found["m_1"][:3] == (1, 2, 0)
    assert {lane.token for lane in found.values()} == {None}
    assert [row.outcome for row in attempts(db)] == ["delivered", "delivered"]
    assert db.execute("SELECT count(*) FROM holdfast.dispatcher_instance").fetchone() == (0,)


def test_second_sigterm_books_what_is_in_flight_as_unknown(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    add_endpoint(db, receiver.url, total_timeout_ms=60_000)
    receiver.script = lambda _seen: webhooks.silence
    decisions.write("m_1")
    with dispatching(dsn, tmp_path / "log") as running:
        eventually(lambda: receiver.seen)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(db)] == ["unknown"]
    assert lanes(db)["m_1"].token is None


@pytest.mark.usefixtures("secret_dir")
def test_endpoint_and_secret_are_picked_up_while_running(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    decisions.write("m_1")
    with dispatching(dsn, tmp_path / "log") as running:
        running.says("dispatcher.started")
        add_endpoint(db, receiver.url, secret_refs=[f"file:{secret}"])
        running.says("endpoint.waiting")
        decisions.write("m_1")
        secret.write_text(secret_text())
        eventually(lambda: receiver.sequences("m_1") == [1, 2])
        running.says("endpoint.ready")
        assert db.execute("SELECT in_flight FROM holdfast.dispatcher_instance").fetchone()
