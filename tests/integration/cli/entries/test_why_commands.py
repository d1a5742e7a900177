"""`holdfast why`: the one thing that an entry or a subject waits for, on a real database."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.why import lock_holders as holding
from holdfast.dispatcher.operators.why import store as why_store
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.entries import BLOCK, RELEASE, decision
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Seen, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver

ALIVE = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, in_flight)
    VALUES (gen_random_uuid(), 'web-1', 41, '1', 3)
"""
NOBODY = "DELETE FROM holdfast.dispatcher_instance"
QUARANTINE = """
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row)
    VALUES (1, 'bad_type', 'the type is empty', %s)
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    monkeypatch.setenv(SECRET, secret_text())
    with webhooks.listening() as receiver:
        yield receiver


@pytest.fixture
def decisions(dsn: str) -> Iterator[Decisions]:
    with Decisions(dsn) as decisions:
        yield decisions


def why(dsn: str, *arguments: str, code: int = ExitCode.OK) -> dict[str, Any]:
    """What the command says, as JSON; `code` is how it must end."""
    done = holdfast("why", *arguments, "--json", dsn=dsn)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """The verdict at each endpoint."""
    return {each["endpoint"]: each["verdict"] for each in found["endpoints"]}


def only(found: dict[str, Any]) -> dict[str, Any]:
    """The answer at the one endpoint that there is."""
    (each,) = found["endpoints"]
    answer: dict[str, Any] = each
    return answer


def test_entry_is_followed_from_its_batch_to_its_receiver(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    rows = [decisions.row("m_1"), decisions.row("m_1", RELEASE), decisions.row("m_2")]
    decisions.write_rows(rows)
    first, second, other = (Key.of(row["key"]).text for row in rows)
    assert why(dsn, first, code=ExitCode.DEGRADED)["verdict"] == "no_endpoint"
    add_endpoint(db, receiver.url)
    add_endpoint(db, receiver.url, name="releases", types=[RELEASE])
    late = {"name": "late", "starts_at": "2999-01-01T00:00:00Z"}
    add_endpoint(db, receiver.url, **late)

    waiting = why(dsn, json.dumps(rows[0]["key"]), code=ExitCode.DEGRADED)
    assert waiting["entry"]["key"] == first
    expected = {"late": "before_start", "payouts": "no_dispatcher", "releases": "not_taken"}
    assert verdicts(waiting) == expected
    db.execute(ALIVE)
    assert verdicts(why(dsn, first)) == expected | {"payouts": "unrouted"}
    assert verdicts(why(dsn, "m_1"))["payouts"] == "unrouted"
    db.execute(NOBODY)

    def judged(seen: Seen) -> webhooks.Behaviour:
        return answer(422 if seen.content["key"] == first else 200)

    receiver.script = judged
    drain(dsn)
    assert verdicts(why(dsn, other)) == expected | {"payouts": "delivered"}
    assert only(why(dsn, other, "--endpoint", "payouts"))["facts"]["delivered_number"] == 1
    dead = why(dsn, first, code=ExitCode.DEGRADED)
    assert (dead["verdict"], dead["needs_a_person"]) == ("dead", True)
    behind = why(dsn, "m_1", "--sequence", "2", "--endpoint", "payouts", code=ExitCode.DEGRADED)
    assert behind["entry"]["key"] == second
    assert (only(behind)["behind"]["key"], only(behind)["behind"]["verdict"]) == (first, "dead")
    assert only(behind)["command"] == f"holdfast redeliver {first} --endpoint payouts --reason TEXT"
    assert verdicts(why(dsn, "m_2")) == {
        "late": "nothing_waits",
        "payouts": "nothing_waits",
        "releases": "nothing_waits",
    }
    subject = why(dsn, "m_1", code=ExitCode.DEGRADED)
    assert verdicts(subject) == {
        "late": "nothing_waits",
        "payouts": "dead",
        "releases": "nothing_waits",
    }
    text = holdfast("why", "m_1", "--sequence", "2", dsn=dsn).stdout
    assert f"payouts: waits behind sequence 1 ({first}), the head of its lane" in text
    assert "entry ahead: dead letter 1 since" in text
    assert f"-> holdfast redeliver {first} --endpoint payouts --reason TEXT" in text


def test_what_holds_a_lane_up_is_named_with_who_did_it(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[3600])
    decisions.write("m_1")
    receiver.script = lambda _seen: answer(503)
    drain(dsn)
    nobody = only(why(dsn, "m_1", code=ExitCode.DEGRADED))
    assert nobody["verdict"] == "no_dispatcher"
    assert nobody["also"][0].startswith("attempt 2 is due ")
    db.execute(ALIVE)
    retry = only(why(dsn, "m_1"))
    assert (retry["verdict"], retry["facts"]["last_status"]) == ("retry", 503)
    assert "after attempt 1 ended failed" in retry["sentence"]

    db.execute("""
        UPDATE holdfast.endpoint_pace SET breaker = 'open', breaker_reason = 'HTTP 503',
            breaker_until = now() + interval '1 minute'
    """)
    opened = only(why(dsn, "m_1"))
    assert (opened["verdict"], len(opened["also"])) == ("breaker_open", 1)
    paused = holdfast("endpoint", "pause", "payouts", "--reason", "their deploy", dsn=dsn)
    assert paused.returncode == ExitCode.OK
    stood = only(why(dsn, "m_1", code=ExitCode.DEGRADED))
    assert stood["verdict"] == "paused"
    (actor,) = db.execute("SELECT actor FROM holdfast.operator_action").fetchone() or ("",)
    assert f"was paused by {actor} " in stood["sentence"]
    assert stood["command"].startswith("holdfast endpoint resume payouts")

    db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    db.execute("UPDATE holdfast.endpoint_pace SET breaker = 'closed', breaker_until = NULL")
    db.execute("""
        UPDATE holdfast.lane SET token = gen_random_uuid(), lease_until = now() + interval '9 s'
    """)
    leased = only(why(dsn, "m_1"))
    assert leased["verdict"] == "sending"
    assert "web-1 pid 41 (3 in flight" in leased["sentence"]
    db.execute("UPDATE holdfast.lane SET token = NULL, lease_until = NULL, due_at = now()")
    assert only(why(dsn, "m_1"))["verdict"] == "due"

    monkeypatch.setattr(holding, "HELD_SECONDS", 0.0)
    with psycopg.connect(dsn, application_name="somebody") as other:
        other.execute("SELECT FROM holdfast.lane FOR UPDATE")
        locked = only(why(dsn, "m_1", code=ExitCode.DEGRADED))
        assert locked["verdict"] == "locked"
        assert locked["holder"]["pid"] == other.info.backend_pid
        assert locked["holder"]["application"] == "somebody"
        assert locked["holder"]["query"] == "SELECT FROM holdfast.lane FOR UPDATE"
        assert f"pg_terminate_backend({other.info.backend_pid})" in locked["command"]
        other.rollback()
        other.execute("LOCK TABLE holdfast.lane")
        monkeypatch.setattr(why_store, "LOCK_SECONDS", 0.2)
        shut = holdfast("why", "m_1", dsn=dsn)
        assert shut.returncode == ExitCode.DEGRADED, shut.stderr
        assert f"pid {other.info.backend_pid} (somebody, idle in transaction" in shut.stderr


def test_entry_that_was_tried_and_is_wanted_no_more_is_no_gap(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, types=[BLOCK], schedule_seconds=[3600])
    row = decisions.row("m_1")
    decisions.write_rows([row])
    key = Key.of(row["key"]).text
    receiver.script = lambda _seen: answer(503)
    drain(dsn)
    holdfast("endpoint", "pause", "payouts", "--reason", "their deploy", dsn=dsn)
    changed = holdfast(
        "endpoint", "set", "payouts", "--type", RELEASE, "--reason", "they said so", dsn=dsn
    )
    assert changed.returncode == ExitCode.OK, changed.stderr
    found = only(why(dsn, key))
    assert (found["verdict"], found["command"]) == ("not_taken", None)
    assert f"the endpoint takes {RELEASE}, not {BLOCK}" in found["sentence"]
    shown = holdfast("entries", "show", key, dsn=dsn).stdout
    assert "its type" in shown
    again = holdfast("redeliver", key, "--reason", "asked", "--yes", dsn=dsn)
    assert again.returncode == ExitCode.NOTHING_MATCHED
    assert "its type" in again.stdout
    assert "None" not in again.stdout


def test_entry_where_no_endpoint_exists_is_explained_with_the_command_that_makes_one(
    dsn: str, decisions: Decisions
) -> None:
    row = decisions.row("m_1")
    decisions.write_rows([row])
    answer = why(dsn, Key.of(row["key"]).text, code=ExitCode.DEGRADED)["answer"]
    assert answer["command"] == "holdfast endpoint add NAME --url URL --secret-ref REF"


def test_what_is_no_entry_is_said_with_what_is_known_of_it(
    dsn: str, db: psycopg.Connection
) -> None:
    spark = Driver(dsn)
    repeated = decision("m_1", 2)
    old = decision("m_2")
    spark.batch(0, decision("m_1"), repeated, old)
    spark.sink.close()
    suppressed = why(dsn, Key.of(repeated["key"]).text)
    assert suppressed["verdict"] == "suppressed"
    assert "batch 0 of stream payouts recorded the key" in suppressed["answer"]["sentence"]

    refused = decision("m_9")
    db.execute(QUARANTINE, [json.dumps(refused, default=str, separators=(",", ":"))])
    named = why(dsn, json.dumps(refused["key"]), code=ExitCode.DEGRADED)
    assert (named["verdict"], named["answer"]["command"]) == (
        "quarantined",
        "holdfast quarantine show 1",
    )
    assert why(dsn, "m_9", code=ExitCode.DEGRADED)["verdict"] == "quarantined"
    db.execute("""
        UPDATE holdfast.quarantine
        SET resolution = 'dismissed', resolved_at = now(), resolved_by = 'ann'
    """)
    gone = why(dsn, "m_9", code=ExitCode.NOTHING_MATCHED)
    assert "(bad_type, dismissed)" in gone["answer"]["sentence"]

    never = why(dsn, Key.of(["x"]).text, code=ExitCode.NOTHING_MATCHED)
    assert never["verdict"] == "unknown"
    with psycopg.connect(dsn, application_name="holdfast sink orders") as writing:
        writing.execute("CREATE TABLE holdfast.being_written ()")
        found = why(dsn, Key.of(["x"]).text, code=ExitCode.NOTHING_MATCHED)
        assert "what holdfast sink orders is writing now" in found["answer"]["sentence"]
        writing.rollback()
    db.execute("DELETE FROM holdfast.entry WHERE key = %s", [Key.of(old["key"]).digest])
    db.execute("UPDATE holdfast.batch SET written_at = written_at - interval '60 days'")
    assert why(dsn, Key.of(old["key"]).text)["verdict"] == "pruned"

    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "is not stored", "m_1", "--sequence", "9"),
        (ExitCode.NOTHING_MATCHED, "no endpoint is called", "m_1", "--endpoint", "nobody"),
        (ExitCode.USAGE, "looks like the parts of a key", "[1]"),
        (ExitCode.USAGE, "looks like the parts of a key", "[" * 100_000),
        (ExitCode.USAGE, "sequence", "m_1", "--sequence", "0"),
    ):
        done = holdfast("why", *map(str, arguments), dsn=dsn)
        assert done.returncode == code, done.stderr
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_text_of_strangers_reaches_no_terminal(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    decisions.write("m\x1b[2J\u202e")
    add_endpoint(db, "http://127.0.0.1:9/")
    for arguments in (["m\x1b[2J\u202e"], ["m\x1b[2J\u202e", "--sequence", "1"], ["\x1b[2J"]):
        text = holdfast("why", *arguments, dsn=dsn).stdout
        assert r"\x1b[2J" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
