"""`holdfast why`, and the plans of its statements."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import ClientCursor

from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.why import lock_holders as holding
from holdfast.dispatcher.operators.why import store as why_store
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.sender import BLOCK, RELEASE, decision, receipt
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.world import World

ALIVE = """
    INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, in_flight)
    VALUES (gen_random_uuid(), 'web-1', 41, '1', 3)
"""
NOBODY = "DELETE FROM holdfast.dispatcher_instance"
QUARANTINE = """
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row)
    VALUES (1, 'bad_type', 'the type is empty', %s)
"""


def why(dsn: str, *arguments: str, code: int = ExitCode.OK) -> dict[str, Any]:
    """What the command says, as JSON; `code` is how it must end."""
    return holdfast("why", *arguments, "--json", dsn=dsn, code=code).json


def verdicts(reply: dict[str, Any]) -> dict[str, str]:
    """The verdict at each endpoint."""
    return {each["endpoint"]: each["verdict"] for each in reply["endpoints"]}


def only(reply: dict[str, Any]) -> dict[str, Any]:
    """The answer at the one endpoint that there is."""
    (each,) = reply["endpoints"]
    answer: dict[str, Any] = each
    return answer


def test_entry_is_followed_from_batch_to_receiver(world: World) -> None:
    rows = [
        world.decisions.row("m_1"),
        world.decisions.row("m_1", RELEASE),
        world.decisions.row("m_2"),
    ]
    world.decisions.write_rows(rows)
    first, second, other = (Key.of(row["key"]).text for row in rows)
    assert why(world.dsn, first, code=ExitCode.DEGRADED)["verdict"] == "no_endpoint"
    world.add_endpoint(world.receiver.url)
    world.add_endpoint(world.receiver.url, name="releases", types=[RELEASE])
    late = {"name": "late", "starts_at": "2999-01-01T00:00:00Z"}
    world.add_endpoint(world.receiver.url, **late)

    waiting = why(world.dsn, json.dumps(rows[0]["key"]), code=ExitCode.DEGRADED)
    assert waiting["entry"]["key"] == first
    expected = {"late": "before_start", "payouts": "no_dispatcher", "releases": "not_taken"}
    assert verdicts(waiting) == expected
    world.db.execute(ALIVE)
    assert verdicts(why(world.dsn, first)) == expected | {"payouts": "unrouted"}
    assert verdicts(why(world.dsn, "m_1"))["payouts"] == "unrouted"
    world.db.execute(NOBODY)

    def judged(seen: Seen) -> webhooks.Behaviour:
        return answer(422 if seen.content["key"] == first else 200)

    world.receiver.script = judged
    world.drain()
    assert verdicts(why(world.dsn, other)) == expected | {"payouts": "delivered"}
    assert only(why(world.dsn, other, "--endpoint", "payouts"))["facts"]["delivered_number"] == 1
    dead = why(world.dsn, first, code=ExitCode.DEGRADED)
    assert (dead["verdict"], dead["needs_a_person"]) == ("dead", True)
    behind = why(
        world.dsn, "m_1", "--sequence", "2", "--endpoint", "payouts", code=ExitCode.DEGRADED
    )
    assert behind["entry"]["key"] == second
    assert (only(behind)["behind"]["key"], only(behind)["behind"]["verdict"]) == (first, "dead")
    assert only(behind)["command"] == f"holdfast redeliver {first} --endpoint payouts --reason TEXT"
    assert verdicts(why(world.dsn, "m_2")) == {
        "late": "nothing_waits",
        "payouts": "nothing_waits",
        "releases": "nothing_waits",
    }
    subject = why(world.dsn, "m_1", code=ExitCode.DEGRADED)
    assert verdicts(subject) == {
        "late": "nothing_waits",
        "payouts": "dead",
        "releases": "nothing_waits",
    }
    text = world.holdfast("why", "m_1", "--sequence", "2").stdout
    assert f"payouts: waits behind sequence 1 ({first}), the head of its lane" in text
    assert "entry ahead: dead letter 1 since" in text
    assert f"-> holdfast redeliver {first} --endpoint payouts --reason TEXT" in text


def test_what_holds_a_lane_up_is_named_with_who_did_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[3600])
    world.write("m_1")
    world.receiver.script = lambda _seen: answer(503)
    world.drain()
    nobody = only(why(world.dsn, "m_1", code=ExitCode.DEGRADED))
    assert nobody["verdict"] == "no_dispatcher"
    assert nobody["also"][0].startswith("attempt 2 is due ")
    world.db.execute(ALIVE)
    retry = only(why(world.dsn, "m_1"))
    assert (retry["verdict"], retry["facts"]["last_status"]) == ("retry", 503)
    assert "after attempt 1 ended failed" in retry["sentence"]

    world.db.execute("""
        UPDATE holdfast.endpoint_pace SET breaker = 'open', breaker_reason = 'HTTP 503',
            breaker_until = now() + interval '1 minute'
    """)
    opened = only(why(world.dsn, "m_1"))
    assert (opened["verdict"], len(opened["also"])) == ("breaker_open", 1)
    world.holdfast("endpoint", "pause", "payouts", "--reason", "their deploy", code=ExitCode.OK)
    stood = only(why(world.dsn, "m_1", code=ExitCode.DEGRADED))
    assert stood["verdict"] == "paused"
    (actor,) = world.db.execute("SELECT actor FROM holdfast.operator_action").fetchone() or ("",)
    assert f"was paused by {actor} " in stood["sentence"]
    assert stood["command"].startswith("holdfast endpoint resume payouts")

    world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    world.db.execute("UPDATE holdfast.endpoint_pace SET breaker = 'closed', breaker_until = NULL")
    world.db.execute("""
        UPDATE holdfast.lane SET token = gen_random_uuid(), lease_until = now() + interval '9 s'
    """)
    leased = only(why(world.dsn, "m_1"))
    assert leased["verdict"] == "sending"
    assert "web-1 pid 41 (3 in flight" in leased["sentence"]
    world.db.execute("UPDATE holdfast.lane SET token = NULL, lease_until = NULL, due_at = now()")
    assert only(why(world.dsn, "m_1"))["verdict"] == "due"

    monkeypatch.setattr(holding, "HELD_SECONDS", 0.0)
    with psycopg.connect(world.dsn, application_name="somebody") as other:
        other.execute("SELECT FROM holdfast.lane FOR UPDATE")
        locked = only(why(world.dsn, "m_1", code=ExitCode.DEGRADED))
        assert locked["verdict"] == "locked"
        assert locked["holder"]["pid"] == other.info.backend_pid
        assert locked["holder"]["application"] == "somebody"
        assert locked["holder"]["query"] == "SELECT FROM holdfast.lane FOR UPDATE"
        assert f"pg_terminate_backend({other.info.backend_pid})" in locked["command"]
        other.rollback()
        other.execute("LOCK TABLE holdfast.lane")
        monkeypatch.setattr(why_store, "LOCK_SECONDS", 0.2)
        shut = world.holdfast("why", "m_1", code=ExitCode.DEGRADED)
        assert f"pid {other.info.backend_pid} (somebody, idle in transaction" in shut.stderr


def test_tried_entry_wanted_no_more_is_no_gap(world: World) -> None:
    world.add_endpoint(world.receiver.url, types=[BLOCK], schedule_seconds=[3600])
    row = world.decisions.row("m_1")
    world.decisions.write_rows([row])
    key = Key.of(row["key"]).text
    world.receiver.script = lambda _seen: answer(503)
    world.drain()
    world.holdfast("endpoint", "pause", "payouts", "--reason", "their deploy")
    changed = world.holdfast(
        "endpoint", "set", "payouts", "--type", RELEASE, "--reason", "they said so"
    )
    assert changed.returncode == ExitCode.OK, changed.stderr
    result = only(why(world.dsn, key))
    assert (result["verdict"], result["command"]) == ("not_taken", None)
    assert f"the endpoint takes {RELEASE}, not {BLOCK}" in result["sentence"]
    shown = world.holdfast("entry", "show", key).stdout
    assert "its type" in shown
    again = world.holdfast("redeliver", key, "--reason", "asked", "--yes")
    assert again.returncode == ExitCode.NOTHING_MATCHED
    assert "its type" in again.stdout
    assert "None" not in again.stdout


def test_entry_without_endpoint_shows_the_command_to_add_one(world: World) -> None:
    row = world.decisions.row("m_1")
    world.decisions.write_rows([row])
    answer = why(world.dsn, Key.of(row["key"]).text, code=ExitCode.DEGRADED)["answer"]
    assert answer["command"] == "holdfast endpoint add NAME --url URL --secret-ref REF"


def test_invalid_row_is_reported_with_what_is_known(world: World) -> None:
    spark = Driver(world.dsn)
    repeated = decision("m_1", 2)
    old = decision("m_2")
    spark.batch(0, decision("m_1"), repeated, old)
    spark.sink.close()
    suppressed = why(world.dsn, Key.of(repeated["key"]).text)
    assert suppressed["verdict"] == "suppressed"
    assert "batch 0 of stream payouts recorded the key" in suppressed["answer"]["sentence"]

    refused = decision("m_9")
    world.db.execute(QUARANTINE, [json.dumps(refused, default=str, separators=(",", ":"))])
    named = why(world.dsn, json.dumps(refused["key"]), code=ExitCode.DEGRADED)
    assert (named["verdict"], named["answer"]["command"]) == (
        "quarantined",
        "holdfast quarantine show 1",
    )
    assert why(world.dsn, "m_9", code=ExitCode.DEGRADED)["verdict"] == "quarantined"
    world.db.execute("""
        UPDATE holdfast.quarantine
        SET resolution = 'dismissed', resolved_at = now(), resolved_by = 'ann'
    """)
    gone = why(world.dsn, "m_9", code=ExitCode.NOTHING_MATCHED)
    assert "(bad_type, dismissed)" in gone["answer"]["sentence"]

    never = why(world.dsn, Key.of(["x"]).text, code=ExitCode.NOTHING_MATCHED)
    assert never["verdict"] == "unknown"
    with psycopg.connect(world.dsn, application_name="holdfast sink orders") as writing:
        writing.execute("CREATE TABLE holdfast.being_written ()")
        result = why(world.dsn, Key.of(["x"]).text, code=ExitCode.NOTHING_MATCHED)
        assert "what holdfast sink orders is writing now" in result["answer"]["sentence"]
        writing.rollback()
    world.db.execute("DELETE FROM holdfast.entry WHERE key = %s", [Key.of(old["key"]).digest])
    world.db.execute("UPDATE holdfast.batch SET written_at = written_at - interval '60 days'")
    assert why(world.dsn, Key.of(old["key"]).text)["verdict"] == "pruned"

    for code, complaint, *arguments in (
        (ExitCode.NOTHING_MATCHED, "is not stored", "m_1", "--sequence", "9"),
        (ExitCode.NOTHING_MATCHED, "no endpoint is called", "m_1", "--endpoint", "nobody"),
        (ExitCode.USAGE, "looks like the parts of a key", "[1]"),
        (ExitCode.USAGE, "looks like the parts of a key", "[" * 100_000),
        (ExitCode.USAGE, "sequence", "m_1", "--sequence", "0"),
    ):
        done = world.holdfast("why", *map(str, arguments), code=code)
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_text_of_strangers_reaches_no_terminal(world: World) -> None:
    world.write("m\x1b[2J\u202e")
    world.add_endpoint("http://127.0.0.1:9/")
    for arguments in (["m\x1b[2J\u202e"], ["m\x1b[2J\u202e", "--sequence", "1"], ["\x1b[2J"]):
        text = world.holdfast("why", *arguments).stdout
        assert r"\x1b[2J" in text
        assert "\x1b" not in text
        assert "\u202e" not in text


APPLIED_AT = "2026-11-02T12:15:01Z"


def _with_receipt(seen: Seen) -> Behaviour:
    content: dict[str, Any] = {
        "key": seen.content["key"],
        "outcome": "applied",
        "applied_at": APPLIED_AT,
    }
    content["receipt"] = receipt(content)
    return answer(200, json.dumps(content).encode())


def test_decision_is_traced_from_batch_to_receipt(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[3600])
    with Decisions(world.dsn) as decisions:
        row = decisions.row("m_1")
        decisions.write_rows([row])
    key = Key.of(row["key"]).text
    waits = world.holdfast("trace", key).stdout
    assert "routed     not yet" in waits
    world.receiver.script = lambda _seen: answer(503, b"their \x1b[2J secret")
    world.drain()
    world.make_due()
    world.receiver.script = _with_receipt
    world.drain()

    done = world.holdfast("trace", key, "--json", code=ExitCode.OK)
    data: dict[str, Any] = done.json
    assert (data["batch"]["stream"], data["batch"]["batch_id"]) == ("test", 1)
    entry = data["entry"]
    assert (entry["subject"], entry["sequence"]) == ("m_1", 1)
    assert entry["decision"] == {"merchant_id": "m_1", "exposure_minor": 8_500_000}
    assert (entry["body"], entry["body_bytes"] > 100) == (None, True)
    (endpoint,) = data["endpoints"]
    assert endpoint["verdict"] == "delivered"
    first, second = endpoint["attempts"]
    assert (first["number"], first["outcome"], first["status"]) == (1, "failed", 503)
    assert (first["response"], first["response_bytes"] > 0) == (None, True)
    assert second["receipt"]["applied_at"] == APPLIED_AT

    text = world.holdfast("trace", key).stdout
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
    full = world.holdfast("trace", key, "--body").stdout
    assert f'"key":"{key}"' in full
    assert "secret" in full
    assert "\x1b" not in full


def test_key_without_an_entry_is_not_traced(dsn: str) -> None:
    for code, complaint, key in (
        (ExitCode.NOTHING_MATCHED, "none ever had", Key.of(["x"]).text),
        (ExitCode.USAGE, "is not a key", "hf_1"),
    ):
        done = holdfast("trace", key, dsn=dsn)
        assert (done.returncode, complaint in done.stderr) == (code, True), done.stderr


SUBJECTS, BATCHES, EACH = 10_000, 3_000, 10

FILL = """
    INSERT INTO holdfast.stream (name, query_id) VALUES ('s', gen_random_uuid());
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    SELECT 'e' || n, 'https://a.example/', '{env:S}' FROM generate_series(1, 2) n;
    INSERT INTO holdfast.subject (name, last_sequence)
    SELECT 'm_' || n, 3 FROM generate_series(1, %(subjects)s) n;
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at,
        routed_at)
    SELECT 's', s.query_id, n, gen_random_uuid(), 1, %(each)s, %(each)s, 0, 0, 0, 0, sha256('x'),
        now() - interval '1 hour' + n * interval '1 second', now()
    FROM holdfast.stream s, generate_series(1, %(batches)s) n ORDER BY n;
    INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at, priority,
        batch_no, body)
    SELECT 1 + (b.batch_id * %(each)s + n) %% %(subjects)s,
        1 + (b.batch_id * %(each)s + n) / %(subjects)s, b.written_at,
        md5(b.batch_id || '.' || n)::uuid, 'a', b.written_at, 0, b.batch_no, '{}'
    FROM holdfast.batch b, generate_series(0, %(each)s - 1) n ORDER BY b.batch_no, n;
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at, due_at)
    SELECT p.id, s.id, 1, 3, 0, now() - interval '1 hour', now()
    FROM holdfast.endpoint p, holdfast.subject s;
    INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
        outcome, status)
    SELECT p.id, e.subject_id, e.sequence, 1, now(), gen_random_uuid(), 'delivered', 200
    FROM holdfast.endpoint p, holdfast.entry e;
    INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at, reason,
        detail, attempts, resolution, resolved_at)
    SELECT 1, subject_id, sequence, key, created_at, 'rejected', 'x', 1,
        CASE WHEN subject_id > 50 THEN 'dismissed' END::holdfast.dead_resolution,
        CASE WHEN subject_id > 50 THEN now() END
    FROM holdfast.entry;
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row)
    SELECT n, 'bad_type', 'x', '{}' FROM generate_series(1, 20000) n;
    INSERT INTO holdfast.operator_action (actor, action, target, reason)
    SELECT 'a', 'b', 'c', 'd' FROM generate_series(1, 20000) n;
"""

INDEXES = {
    "why/subject": {"uq_subject_name"},
    "why/entry": {"_pkey", "uq_batch_batch_no", "pk_subject"},
    "why/standing": {"pk_lane", "ix_lane_due", "uq_dead_letter_open", "_pkey"},
    "why/heads": {"pk_lane", "_pkey"},
    "why/action": {"pk_operator_action"},
    "why/resolved": {"pk_dead_letter"},
    "why/quarantined": {"pk_quarantine"},
    "attempts/list": {"_pkey"},
    "entries/tail_batches": {"uq_batch_batch_no"},
    "entries/tail_newest": {"uq_batch_batch_no"},
    "entries/tail": {"_batch_no_idx", "pk_subject"},
}

ANALYZE = (
    "entry, holdfast.batch, holdfast.subject, holdfast.lane, holdfast.attempt,"
    " holdfast.dead_letter, holdfast.quarantine, holdfast.operator_action"
)
FEW = ("endpoint", "endpoint_pace", "dispatcher_instance", "replay")
"""A row per endpoint, process or plan: read as they are."""


def test_every_statement_of_an_answer_uses_its_indexes(db: psycopg.Connection) -> None:
    ClientCursor(db).execute(FILL, {"subjects": SUBJECTS, "batches": BATCHES, "each": EACH})
    db.execute(f"VACUUM ANALYZE holdfast.{ANALYZE}".encode())
    no, at = db.execute(
        "SELECT batch_no, created_at FROM holdfast.entry WHERE subject_id = 7 AND sequence = 3"
    ).fetchone() or (0, datetime.now(UTC))
    values: dict[str, Any] = {
        "subject": "m_7",
        "subject_id": 7,
        "sequence": 3,
        "key": UUID(int=1),
        "created_at": at,
        "written_at": at,
        "batch_no": no,
        "type": None,
        "endpoint_id": None,
        "endpoint": "e1",
        "action": "endpoint.paused",
        "text": "m_7",
        "due_before_max": 1001,
        "first_sequence": 1,
        "last_sequence": 2**63 - 1,
        "since": datetime(1, 1, 1, tzinfo=UTC),
        "until": datetime(9999, 12, 31, tzinfo=UTC),
        "outcome": None,
        "before_sequence": None,
        "before_number": None,
        "before_endpoint_id": None,
        "after": no,
        "missing": [1, 2],
        "after_subject_id": 0,
        "after_sequence": 0,
        "limit": 51,
    }
    for name, indexes in INDEXES.items():
        parameters = values | ({"subject": None} if name == "entries/tail" else {})
        if name == "why/resolved":
            parameters |= {"endpoint_id": 1}
        plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), parameters).fetchall()
        plan = "\n".join(line for (line,) in plan_lines)
        assert {index for index in indexes if index in plan} == indexes, (name, plan)
        for line in plan.splitlines():
            if "Seq Scan on " in line:
                table = line.partition("Seq Scan on ")[2].split()[0]
                # A day without a row is read as fast as its index.
                assert table in FEW or "rows=1 " in line, (name, plan)
