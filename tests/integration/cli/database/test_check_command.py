"""`holdfast check`: nothing is found in an outbox that really ran, and each thing bent is named."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.check import actions as checking
from holdfast.dispatcher.operators.check.rules import INVARIANT, Rule
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, drain
from tests.support.dispatch.sender import RELEASE, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import copy_of

pytestmark = pytest.mark.rest


TABLES = (
    *("stream", "batch", "entry_key", "subject", "entry", "suppressed", "quarantine", "endpoint"),
    *("lane", "lane_key", "attempt", "dead_letter", "replay", "replay_item", "operator_action"),
    "cancellation",
)
REFUSING = (
    ("batch", "ck_batch_counts"),
    ("lane", "ck_lane_sequences"),
    ("lane", "ck_lane_lease"),
    ("lane", "ck_lane_rescued"),
    ("attempt", "ck_attempt_delivered"),
)

_OF = "subject_id = (SELECT id FROM holdfast.subject WHERE name = '{}') AND sequence = {}"
_AT = " AND endpoint_id = 1 AND " + _OF
LANE = "UPDATE holdfast.lane SET {} WHERE endpoint_id = 1 AND subject_id = 1"
TWICE = """DELETE FROM holdfast.lane_key;
    INSERT INTO holdfast.lane SELECT (jsonb_populate_record(lane, '{"turn": 99}')).*
        FROM holdfast.lane WHERE endpoint_id = 1 AND subject_id = 1;
    INSERT INTO holdfast.lane_key SELECT DISTINCT endpoint_id, subject_id FROM holdfast.lane
        ON CONFLICT DO NOTHING"""
TRIED = """
    INSERT INTO holdfast.attempt
        (endpoint_id, subject_id, sequence, number, finished_at, token, outcome, status)
    VALUES (1, 1, {}, {}, now(), gen_random_uuid(), 'failed', 500)
"""
RESOLVED = "UPDATE holdfast.{} SET resolution = 'dismissed', resolved_at = clock_timestamp()"
AUDITED = """
    INSERT INTO holdfast.operator_action (actor, action, target, reason)
    SELECT 'me', 'dead.dismiss', 'dead letter ' || id, 'test' FROM holdfast.dead_letter
"""
QUARANTINED = """
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, resolution, resolved_at)
    VALUES (1, 'bad_key', 'x', '{}', 'dismissed', clock_timestamp())
"""
COUNTED_SUPPRESSED = "entry_count = 1, suppressed_count = 2, keeps_suppressed = false"
KEPT_SUPPRESSED = """INSERT INTO holdfast.suppressed SELECT batch_no, gen_random_uuid(), written_at,
    1, 't', now(), 0, 'repeated', NULL, '[]', '{}' FROM holdfast.batch WHERE batch_no = 2"""
CANCELLED = """
    WITH cancelled AS (
        INSERT INTO holdfast.cancellation
            (endpoint_id, subject_id, sequence, key, cancelled_by, reason)
        SELECT 1, subject_id, sequence, key, 'me', 'test' FROM holdfast.entry WHERE {}
        RETURNING key)
    INSERT INTO holdfast.operator_action (actor, action, target, reason)
    SELECT 'me', 'entry.cancel', 'entry hf_' || replace(key::text, '-', ''), 'test' FROM cancelled
"""
BENDS: tuple[tuple[Rule, str, str | int | None], ...] = (
    (
        Rule.SEQUENCE_GAP,
        """
        DELETE FROM holdfast.entry_key k USING holdfast.entry e
            WHERE k.key = e.key AND e.subject_id = 1 AND e.sequence = 2;
        DELETE FROM holdfast.entry WHERE subject_id = 1 AND sequence = 2;
        UPDATE holdfast.batch SET entry_count = entry_count - 1, row_count = row_count - 1
            WHERE batch_no = 2
        """,
        "m_1 3",
    ),
    (
        Rule.SEQUENCE_END,
        "UPDATE holdfast.subject SET last_sequence = 3 WHERE name = 'm_2'",
        "m_2 2",
    ),
    (Rule.ATTEMPT_UNROUTED, TRIED.format(9, 1), "m_1 9"),
    (Rule.BATCH_ENTRIES, f"UPDATE holdfast.batch SET {COUNTED_SUPPRESSED} WHERE batch_no = 2", 2),
    (
        Rule.BATCH_KEYS,
        "INSERT INTO holdfast.entry_key VALUES (gen_random_uuid(), gen_random_uuid(), 3)",
        3,
    ),
    (Rule.ENTRY_UNBATCHED, "DELETE FROM holdfast.batch WHERE batch_no = 2", "m_1 2"),
    (
        Rule.SEQUENCE_REPEATED,
        """
        INSERT INTO holdfast.entry SELECT subject_id, sequence, created_at + interval '1 us',
            md5('x')::uuid, type, occurred_at, priority, batch_no, traceparent, body
            FROM holdfast.entry WHERE subject_id = 1 AND sequence = 2;
        INSERT INTO holdfast.entry_key SELECT md5('x')::uuid, k.content, k.batch_no
            FROM holdfast.entry_key k JOIN holdfast.entry e USING (key)
            WHERE e.subject_id = 1 AND e.sequence = 2;
        UPDATE holdfast.batch SET entry_count = entry_count + 1, row_count = row_count + 1
            WHERE batch_no = 2
        """,
        "m_1 2",
    ),
    (
        Rule.KEY_UNRECORDED,
        (
            "UPDATE holdfast.entry_key SET key = md5('x')::uuid WHERE key ="
            " (SELECT key FROM holdfast.entry WHERE subject_id = 1 AND sequence = 2)"
        ),
        "m_1 2",
    ),
    (
        Rule.BODY_CHANGED,
        (
            "UPDATE holdfast.entry SET body = replace(body::text, '38', '39')::bytea"
            " WHERE subject_id = 1 AND sequence = 2"
        ),
        "m_1 2",
    ),
    (Rule.DEAD_KEY, "UPDATE holdfast.dead_letter SET key = md5('x')::uuid", "m_dead 1"),
    (
        Rule.PASSED_UNDELIVERED,
        "UPDATE holdfast.attempt SET outcome = 'failed', status = 500 WHERE true"
        + _AT.format("m_2", 2),
        "m_2 2",
    ),
    (Rule.DELIVERED_UNPASSED, LANE.format("delivered_sequence = 2, due_at = now()"), "m_1 3"),
    (
        Rule.ANSWER_MISREAD,
        "UPDATE holdfast.attempt SET status = 503 WHERE true" + _AT.format("m_2", 2),
        "m_2 2",
    ),
    (
        Rule.DEAD_AND_DELIVERED,
        "UPDATE holdfast.attempt SET outcome = 'delivered', status = 200 WHERE true"
        + _AT.format("m_dead", 1)
        + "; UPDATE holdfast.lane SET delivered_sequence = 1, due_at = now() WHERE endpoint_id = 1"
        " AND delivered_sequence = 0",
        "m_dead 1",
    ),
    (Rule.LANE_STATE, LANE.format("claimed_sequence = 99"), "m_1 4"),
    (Rule.LANE_STATE, LANE.format("lease_until = now()"), "m_1 4"),
    (Rule.LANE_STATE, LANE.format("rescued = 2"), "m_1 4"),
    (Rule.LANE_STATE, LANE.format("due_at = now()"), "m_1 4"),
    (Rule.LANE_STATE, LANE.format("last_sequence = 4, delivered_sequence = 4"), "m_1 5"),
    (Rule.LANE_STATE, TWICE, "m_1 4"),
    (Rule.LANE_STATE, "DELETE FROM holdfast.lane_key WHERE subject_id = 1", "m_1 4"),
    (
        Rule.ATTEMPT_GAP,
        "UPDATE holdfast.attempt SET number = 2 WHERE true" + _AT.format("m_2", 2),
        "m_2 2",
    ),
    (Rule.SENT_AFTER_DELIVERED, TRIED.format(1, 2), "m_1 1"),
    (
        Rule.ENTRY_UNREACHED,
        "DELETE FROM holdfast.attempt WHERE true"
        + _AT.format("m_1", 3)
        + ";"
        + LANE.format("last_sequence = 2, delivered_sequence = 2, claimed_sequence = 2"),
        "m_1 3",
    ),
    (Rule.LANE_STOPPED, RESOLVED.format("dead_letter") + ";" + AUDITED, "m_dead 1"),
    (Rule.CANCELLED_SENT, CANCELLED.format(_OF.format("m_1", 1)), "m_1 1"),
    (Rule.CANCELLED_WAITS, CANCELLED.format(_OF.format("m_dead", 2)), "m_dead 2"),
    (Rule.BATCH_ROWS, "UPDATE holdfast.batch SET row_count = 9 WHERE batch_no = 2", 2),
    (
        Rule.BATCH_QUARANTINED,
        "UPDATE holdfast.batch SET row_count = 5, quarantined_count = 2 WHERE batch_no = 2",
        2,
    ),
    (Rule.BATCH_SUPPRESSED, KEPT_SUPPRESSED, 2),
    (Rule.UNAUDITED, "UPDATE holdfast.endpoint SET updated_at = now() WHERE id = 1", None),
    (
        Rule.UNAUDITED,
        "UPDATE holdfast.stream SET created_at = now() - interval '1 h', adopted_at = now()",
        None,
    ),
    (
        Rule.UNAUDITED,
        QUARANTINED
        + ";UPDATE holdfast.batch SET row_count = 5, quarantined_count = 1 WHERE batch_no = 1",
        None,
    ),
    (
        Rule.UNAUDITED,
        RESOLVED.format("dead_letter")
        + ";UPDATE holdfast.lane SET due_at = now() WHERE delivered_sequence = 0",
        None,
    ),
    (
        Rule.TIME_BACKWARDS,
        "UPDATE holdfast.attempt SET retry_at = finished_at - interval '1 s' WHERE true"
        + _AT.format("m_2", 1),
        "m_2 1",
    ),
    (
        Rule.TIME_FUTURE,
        LANE.format(
            "token = gen_random_uuid(), lease_until = now() + interval '2 h',"
            " delivered_sequence = 2"
        )
        .replace(
            "subject_id = 1", "subject_id = (SELECT id FROM holdfast.subject WHERE name = 'm_dead')"
        )
        .replace(", delivered_sequence = 2", ""),
        "m_dead 1",
    ),
)


def _answer(seen: Seen) -> Behaviour:
    """Take everything but what is of m_dead."""
    return answer(400 if seen.subject == "m_dead" else 200)


@pytest.fixture(scope="module")
def ran(server_dsn: str, template_database: str) -> Iterator[str]:
    """An outbox after deliveries: three subjects of three entries, a dead letter, two endpoints."""
    with (
        pytest.MonkeyPatch.context() as environment,
        copy_of(server_dsn, template_database) as dsn,
        webhooks.listening() as receiver,
    ):
        environment.setenv(SECRET, secret_text())
        receiver.script = _answer
        for name, types in (("payouts", ()), ("releases", ("--type", RELEASE))):
            done = holdfast(
                *("endpoint", "add", name, "--url", receiver.url, "--allow-cidr", "127.0.0.0/8"),
                *("--secret-ref", f"env:{SECRET}", *types),
                dsn=dsn,
            )
            assert done.returncode == ExitCode.OK, done.stderr
        with Decisions(dsn) as decisions:
            decisions.write("m_1", "m_2", "m_3", "m_dead")
            decisions.write("m_1", "m_2", "m_dead")
            decisions.write("m_1", "m_3", type_=RELEASE)
        drain(dsn)
        yield dsn


@pytest.fixture(scope="module")
def kept(ran: str) -> Iterator[psycopg.Connection]:
    """A connection that nothing refuses, with a copy of every table that may be bent."""
    with psycopg.connect(ran, autocommit=True) as db:
        # What the database itself refuses is looked for all the same: it may come from a restore.
        db.execute("SET session_replication_role = replica")
        for table, constraint in REFUSING:
            db.execute(f"ALTER TABLE holdfast.{table} DROP CONSTRAINT {constraint}".encode())
        db.execute("CREATE SCHEMA kept")
        for table in TABLES:
            db.execute(f"CREATE TABLE kept.{table} AS TABLE holdfast.{table}".encode())
        yield db


@pytest.fixture
def bent(kept: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """The same; afterwards every table is as it was."""
    yield kept
    with kept.transaction():
        for table in TABLES:
            kept.execute(f"DELETE FROM holdfast.{table}".encode())
            kept.execute(
                f"INSERT INTO holdfast.{table} OVERRIDING SYSTEM VALUE TABLE kept.{table}".encode()
            )


def checked(dsn: str, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    return holdfast("check", "--json", *options, dsn=dsn, code=code).json


def test_outbox_that_ran_holds_every_rule(ran: str) -> None:
    checks = checked(ran)
    assert (checks["holds"], checks["violated"]) == (True, {})
    assert checks["counted"]["batches"] == 3
    assert checks["counted"]["entries"] == 9
    assert checks["counted"]["deliveries"] == 9 + 2
    assert checks["counted"]["dead_letters"] == 1
    assert checks["counted"]["attempts"] == 10
    assert checks["counted"]["batches_unrouted"] == 0
    text = holdfast("check", dsn=ran).stdout
    assert "every rule holds" in text
    assert "3 batches, 9 entries" in text


@pytest.mark.parametrize(
    ("rule", "bend", "where"), BENDS, ids=[f"{n}-{rule}" for n, (rule, _, _) in enumerate(BENDS)]
)
def test_each_violation_is_named_and_nothing_else(
    ran: str, bent: psycopg.Connection, rule: Rule, bend: str, where: str | int | None
) -> None:
    bent.execute(bend.encode())
    checks = checked(ran, code=ExitCode.FAILED)
    assert list(checks["violated"]) == [rule.value], checks["violations"]
    assert checks["holds"] is False
    assert checks["rules"][rule.value]["invariant"] == INVARIANT[rule]
    row = checks["violations"][0]
    if isinstance(where, str):
        assert f"{row['subject']} {row['sequence']}" == where
    elif where is not None:
        assert (row["stream"], row["batch_id"]) == ("test", where)
    assert row["detail"]


def test_every_rule_provable_by_the_database_is_violated_once() -> None:
    bent = {rule for rule, _, _ in BENDS}
    assert {rule for rule in Rule if not rule.name.startswith("RECEIVER_")} == bent


def test_text_names_row_meaning_and_how_many_more(ran: str, bent: psycopg.Connection) -> None:
    bent.execute("UPDATE holdfast.subject SET name = E'm\x1b[2J' WHERE id = 1")
    bent.execute("UPDATE holdfast.entry SET body = '{}' WHERE subject_id = 1")
    done = holdfast("check", "--limit", "1", dsn=ran, code=ExitCode.FAILED)
    assert "I4 body_changed 3: An entry's body is not the one" in done.stdout
    assert r"m\x1b[2J 1  test batch 1: its body" in done.stdout
    assert "\x1b" not in done.stdout
    assert "limited to 1 of each rule" in done.stdout


def test_audited_replay_or_person_holds(ran: str, bent: psycopg.Connection) -> None:
    bent.execute(TRIED.format(1, 2).encode())
    bent.execute("""
        WITH made AS (
            INSERT INTO holdfast.replay (id, verb, filter, item_count, reason, actor)
            VALUES (gen_random_uuid(), 'redeliver', '{"a": 1}', 1, 'r', 'me') RETURNING id),
        audited AS (
            INSERT INTO holdfast.operator_action (actor, action, target, reason)
            SELECT 'me', 'replay.plan', id, 'r' FROM made)
        INSERT INTO holdfast.replay_item
            (replay_id, endpoint_id, subject_id, sequence, created_at, key, kind, place)
        SELECT id, 1, 1, 1, now(), md5('x')::uuid, 'resend', 1 FROM made
    """)
    for command in (
        ("pause", "payouts"),
        ("set", "releases", "--concurrency", "2"),
        ("add", "new", "--url", "https://new.example/", "--secret-ref", "env:HOLDFAST_SECRET_S"),
    ):
        holdfast("endpoint", *command, "--reason", "test", dsn=ran, code=ExitCode.OK)
    checked(ran)


def test_endpoint_stream_and_time_choose_the_check(ran: str, bent: psycopg.Connection) -> None:
    bent.execute("UPDATE holdfast.entry SET body = '{}' WHERE subject_id = 1")
    bent.execute(LANE.format("claimed_sequence = 99").encode())
    both = checked(ran, code=ExitCode.FAILED)["violated"]
    assert both == {"body_changed": 3, "lane_state": 1}
    assert checked(ran, "--stream", "test", code=ExitCode.FAILED)["violated"] == {"body_changed": 3}
    of_payouts = checked(ran, "--endpoint", "payouts", code=ExitCode.FAILED)
    assert of_payouts["violated"] == {"lane_state": 1}
    assert of_payouts["violations"][0]["endpoint"] == "payouts"
    checked(ran, "--endpoint", "releases")
    before = checked(ran, "--until", "1h", "--since", "2h", code=ExitCode.FAILED)
    assert before["violated"] == {"lane_state": 1}, "lanes have no time"


def test_uncheckable_settings_are_reported(ran: str) -> None:
    for options, code, words in (
        (("--since", "2h", "--until", "1h"), ExitCode.NOTHING_MATCHED, "no batch was written"),
        (("--since", "1h", "--until", "2h"), ExitCode.USAGE, "not before"),
        (("--since", "soon"), ExitCode.USAGE, "or a time with a zone"),
        (("--endpoint", "nope"), ExitCode.NOTHING_MATCHED, "no endpoint 'nope'"),
        (("--stream", "nope"), ExitCode.NOTHING_MATCHED, "no stream is called 'nope'"),
        (("--receiver", "host=x"), ExitCode.USAGE, "name it with --endpoint"),
    ):
        done = holdfast("check", *options, dsn=ran)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr


def test_small_pieces_find_what_large_ones_do(
    ran: str, bent: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    bent.execute("UPDATE holdfast.entry SET body = '{}' WHERE sequence = 2")
    bent.execute("UPDATE holdfast.lane SET claimed_sequence = 99")
    large = checked(ran, "--limit", "1", code=ExitCode.FAILED)
    monkeypatch.setattr(checking, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(checking, "ENTRIES_AT_FIRST", 1)
    monkeypatch.setattr(checking, "SUBJECTS_AT_FIRST", 1)
    small = checked(ran, "--limit", "1", code=ExitCode.FAILED)
    for name in ("counted", "violated", "violations"):
        assert small[name] == large[name]


def test_check_changes_nothing(ran: str, bent: psycopg.Connection) -> None:
    counts = "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables ORDER BY 1"
    bent.execute("SELECT pg_stat_force_next_flush()")
    before = bent.execute(counts.encode()).fetchall()
    checked(ran)
    assert bent.execute(counts.encode()).fetchall() == before
