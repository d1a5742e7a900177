"""`holdfast db prune`: what it drops, what it refuses to, and who may."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.migrations.prune import Outcome
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import JANITOR, OPERATOR, READER, SINK
from tests.support.command import holdfast
from tests.support.dispatch.aging import OLD, age, partition_days
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.entries import decision
from tests.support.dispatch.pruning import count, outcomes, pruned_days
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest


@pytest.mark.usefixtures("delivered")
def test_delivered_days_are_dropped_as_a_whole_and_keys_batches_and_subjects_stay(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    before = partition_days(db, "entry")
    pruned = pruned_days(dsn)
    assert {day.outcome for day in pruned} == {Outcome.DROPPED}
    assert sum(day.found.row_count or 0 for day in pruned if day.table == "entry") == 3
    assert (count(db, "entry"), count(db, "attempt")) == (0, 0)
    assert (count(db, "entry_key"), count(db, "batch"), count(db, "subject")) == (3, 1, 2)
    today = datetime.now(UTC).date()
    assert partition_days(db, "entry") == {
        day for day in before if day >= today - timedelta(days=90)
    }
    again = decisions.write_rows([decision("m_1", 1), decision("m_2", 2)])
    assert (again.counts.duplicates, again.counts.entries) == (1, 1)


@pytest.mark.usefixtures("delivered")
def test_each_day_leaves_an_audit_row(dsn: str, db: psycopg.Connection) -> None:
    pruned = pruned_days(dsn)
    rows = db.execute("""
        SELECT action, target, reason, (detail->>'rows')::int FROM holdfast.operator_action
        ORDER BY id""").fetchall()
    assert rows == [
        ("partition.drop", f"{day.table}_{day.day:%Y%m%d}", "test", day.found.row_count)
        for day in pruned
    ]


def _paused(db: psycopg.Connection) -> None:
    db.execute("UPDATE holdfast.endpoint SET state = 'paused'")


def _routed_by_nobody(db: psycopg.Connection) -> None:
    db.execute("TRUNCATE holdfast.lane, holdfast.attempt")
    db.execute("UPDATE holdfast.batch SET routed_at = NULL")


def _dead(db: psycopg.Connection) -> None:
    db.execute("""
        INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at,
            reason, detail, attempts)
        SELECT l.endpoint_id, e.subject_id, e.sequence, e.key, e.created_at, 'rejected', '', 1
        FROM holdfast.entry e JOIN holdfast.lane l USING (subject_id) WHERE e.sequence = 2""")


def _behind(db: psycopg.Connection) -> None:
    db.execute("UPDATE holdfast.lane SET delivered_sequence = 0")
    _paused(db)


def _added_later(db: psycopg.Connection) -> None:
    add_endpoint(db, "http://127.0.0.1:1/", name="ledger", starts_at=None)


@pytest.mark.usefixtures("delivered")
@pytest.mark.parametrize(
    ("spoil", "put_right", "words"),
    [
        (_behind, "UPDATE holdfast.lane SET delivered_sequence = 2", "3 undelivered for payouts"),
        (_routed_by_nobody, "UPDATE holdfast.endpoint SET state = 'disabled'", "3 not routed yet"),
        (
            _dead,
            "UPDATE holdfast.dead_letter SET resolution = 'dismissed', resolved_at = now()",
            "1 dead and not resolved (payouts)",
        ),
        (
            _added_later,
            "UPDATE holdfast.endpoint SET starts_at = now() WHERE name = 'ledger'",
            "3 undelivered for ledger",
        ),
    ],
    ids=["lane behind", "unrouted batch", "open dead letter", "endpoint from the beginning"],
)
def test_day_with_something_undelivered_is_refused_until_that_is_put_right(
    dsn: str,
    db: psycopg.Connection,
    spoil: Callable[[psycopg.Connection], None],
    put_right: str,
    words: str,
) -> None:
    db.execute("UPDATE holdfast.lane SET last_sequence = 2")
    spoil(db)
    attempts = count(db, "attempt")
    told = holdfast("db", "prune", "--older-than", "90d", dsn=dsn)
    assert told.returncode == ExitCode.DEGRADED
    assert words in told.stdout
    assert "Nothing undelivered was dropped" in told.stdout
    assert count(db, "entry") == 3
    if spoil in (_behind, _dead):
        assert count(db, "attempt") == attempts
    db.execute(put_right.encode())
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    assert outcomes(pruned_days(dsn)) == {Outcome.DROPPED}
    assert (count(db, "entry"), count(db, "attempt")) == (0, 0)


@pytest.mark.usefixtures("delivered")
def test_endpoint_that_is_disabled_keeps_nothing_and_what_it_missed_is_on_record(
    dsn: str, db: psycopg.Connection
) -> None:
    _behind(db)
    db.execute("UPDATE holdfast.endpoint SET state = 'disabled'")
    pruned = pruned_days(dsn)
    assert outcomes(pruned) == {Outcome.DROPPED}
    assert sum(day.found.abandoned or 0 for day in pruned if day.table == "entry") == 3
    rows = db.execute("""
        SELECT sum((detail->>'undelivered_to_disabled_endpoints')::int)
        FROM holdfast.operator_action WHERE target LIKE 'entry%'""").fetchone()
    assert rows == (3,)


@pytest.mark.usefixtures("delivered")
def test_refused_day_keeps_no_other_day(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    decisions.write("m_3")
    drain(dsn)
    age(db, OLD)
    db.execute("""
        UPDATE holdfast.lane SET delivered_sequence = 0
        WHERE subject_id = (SELECT id FROM holdfast.subject WHERE name = 'm_1')""")
    pruned = [day for day in pruned_days(dsn) if day.found.row_count]
    assert [(day.table, day.outcome) for day in pruned] == [
        ("entry", Outcome.REFUSED),
        ("entry", Outcome.DROPPED),
        ("attempt", Outcome.REFUSED),
        ("attempt", Outcome.DROPPED),
    ]
    assert count(db, "entry") == 3


def test_today_yesterday_and_the_days_ahead_are_never_dropped(
    dsn: str, db: psycopg.Connection
) -> None:
    before = partition_days(db, "entry")
    today = datetime.now(UTC).date()
    assert today - timedelta(days=1) in before
    assert pruned_days(dsn, older_than=1) == []
    for day in (today - timedelta(days=1), today, today + timedelta(days=3)):
        row = db.execute(
            "SELECT outcome FROM holdfast.prune_day('entry', %s, 1, false, 'test', 'test')", [day]
        ).fetchone()
        assert row == ("gone",)
    for older_than in (0, -1, 36_501, None):
        with pytest.raises(psycopg.errors.RaiseException, match="days must be 1 to 36500"):
            db.execute("SELECT holdfast.days_older_than(%s)", [older_than])
    assert partition_days(db, "entry") == before


@pytest.mark.usefixtures("delivered")
def test_dry_run_tells_what_would_be_dropped_and_changes_nothing(
    dsn: str, db: psycopg.Connection
) -> None:
    before = partition_days(db, "entry")
    told = holdfast("db", "prune", "--older-than", "90d", "--dry-run", "--json", dsn=dsn)
    assert told.returncode == ExitCode.OK, told.stderr
    report = json.loads(told.stdout)
    assert (report["older_than_days"], report["dry_run"]) == (90, True)
    assert {day["outcome"] for day in report["days"]} == {"droppable"}
    assert sum(day["row_count"] for day in report["days"] if day["table"] == "entry") == 3
    assert partition_days(db, "entry") == before
    assert count(db, "operator_action") == 0
    told = holdfast("db", "prune", "--older-than", "90d", dsn=dsn)
    assert told.returncode == ExitCode.OK, told.stderr
    assert re.search(r"entry +\d{4}-\d\d-\d\d +dropped: 3 rows", told.stdout)
    told = holdfast("db", "prune", "--older-than", "90d", dsn=dsn)
    assert told.returncode == ExitCode.NOTHING_MATCHED
    assert "No day is older than 90 days" in told.stdout


@pytest.mark.parametrize("older_than", ["90", "0d", "-1d", "1.5d", "90 d", "99999d", "\u0661d", ""])
def test_senseless_age_is_one_line(dsn: str, older_than: str) -> None:
    told = holdfast("db", "prune", f"--older-than={older_than}", dsn=dsn)
    assert told.returncode == ExitCode.USAGE
    assert "expected 1d to 36500d. Nothing was dropped." in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("role", [SINK, OPERATOR, READER])
@pytest.mark.parametrize(
    "call",
    [
        "holdfast.prune_day('entry', '2020-01-01', 90, false, 'a', 'r')",
        "holdfast.days_older_than(90)",
        "holdfast.undelivered_in('entry', '2020-01-01')",
    ],
)
def test_role_that_does_not_maintain_is_refused(dsn: str, role: str, call: str) -> None:
    with psycopg.connect(dsn) as session:
        session.execute(f"SET ROLE {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(f"SELECT {call}".encode())


@pytest.mark.usefixtures("delivered")
def test_janitor_drops_by_the_function_alone(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(f"SET ROLE {JANITOR}".encode())
        (name,) = session.execute("""
            SELECT min(relname) FROM pg_class WHERE relname ~ '^entry_[0-9]{8}$'""").fetchone() or (
            "",
        )
        for statement in (
            f"DROP TABLE holdfast.{name}",
            "TRUNCATE holdfast.entry",
            "DELETE FROM holdfast.entry",
            "SELECT FROM holdfast.entry",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(statement.encode())


def test_database_of_another_revision_is_one_line(
    dsn: str, db: psycopg.Connection, make_database: Callable[[str | None], str]
) -> None:
    with pytest.raises(CommandError, match=r"no schema revision: run .*Nothing was dropped"):
        pruned_days(make_database(None))
    db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
    with pytest.raises(CommandError, match="revision 0001"):
        pruned_days(dsn)


WAIT_IN_THE_SCAN = """
    CREATE FUNCTION public.wait_here() RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN true; END';
    ALTER TABLE holdfast.{day} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    CREATE POLICY waits ON holdfast.{day} USING (public.wait_here());
"""
ROUTE = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        due_at, head_created_at)
    SELECT p.id, e.subject_id, 0, max(e.sequence), 0, now(), min(e.created_at)
    FROM holdfast.endpoint p CROSS JOIN holdfast.entry e GROUP BY 1, 2
"""


@pytest.mark.usefixtures("delivered")
def test_batch_that_is_routed_while_its_day_is_counted_keeps_the_day(
    dsn: str, db: psycopg.Connection
) -> None:
    _routed_by_nobody(db)
    [day] = db.execute(
        "SELECT DISTINCT tableoid::regclass::text FROM holdfast.entry"
    ).fetchone() or ("",)
    db.execute(WAIT_IN_THE_SCAN.format(day=day.removeprefix("holdfast.")).encode())
    db.execute("SELECT pg_advisory_lock(42)")
    with ThreadPoolExecutor(1) as pool:
        pruned = pool.submit(pruned_days, dsn)
        eventually(
            lambda: db.execute(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
            ).fetchone()
        )
        db.execute(ROUTE)
        db.execute("UPDATE holdfast.batch SET routed_at = now()")
        db.execute("SELECT pg_advisory_unlock(42)")
        assert Outcome.REFUSED in outcomes(pruned.result())
    assert count(db, "entry") == 3
