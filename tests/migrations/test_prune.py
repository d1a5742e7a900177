"""`holdfast db prune`: what it drops and refuses to, who may, and whom it stops."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pytest

from holdfast.migrations import prune as module
from holdfast.migrations.prune import Day, Outcome, prune
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import JANITOR, OPERATOR, READER, SINK
from tests.support.command import holdfast
from tests.support.dispatch.delivery import OLD, age, partition_days
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.sender import decision
from tests.support.waiting import eventually
from tests.support.world import World


def pruned_days(dsn: str, *, older_than: int = 90, dry_run: bool = False) -> list[Day]:
    """Prune once; returns the days that were checked."""
    return prune(dsn, days=older_than, dry_run=dry_run, reason="test")


def outcomes(days: list[Day], table: str = "entry") -> set[Outcome]:
    """What became of the days of a table."""
    return {day.outcome for day in days if day.table == table}


def count(db: psycopg.Connection, table: str) -> int:
    """Rows of a table."""
    row = db.execute(f"SELECT count(*) FROM holdfast.{table}".encode()).fetchone()
    return int((row or (0,))[0])


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_delivered_days_are_dropped_and_keys_and_batches_stay(world: World) -> None:
    before = partition_days(world.db, "entry")
    pruned = pruned_days(world.dsn)
    assert {day.outcome for day in pruned} == {Outcome.DROPPED}
    assert sum(day.state.row_count or 0 for day in pruned if day.table == "entry") == 3
    assert (count(world.db, "entry"), count(world.db, "attempt")) == (0, 0)
    assert (count(world.db, "entry_key"), count(world.db, "batch"), count(world.db, "subject")) == (
        3,
        1,
        2,
    )
    today = datetime.now(UTC).date()
    assert partition_days(world.db, "entry") == {
        day for day in before if day >= today - timedelta(days=90)
    }
    again = world.decisions.write_rows([decision("m_1", 1), decision("m_2", 2)])
    assert (again.counts.duplicates, again.counts.entries) == (1, 1)


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_each_day_leaves_an_audit_row(dsn: str, db: psycopg.Connection) -> None:
    pruned = pruned_days(dsn)
    rows = db.execute("""
        SELECT action, target, reason, (detail->>'rows')::int FROM holdfast.operator_action
        ORDER BY id""").fetchall()
    assert rows == [
        ("partition.drop", f"{day.table}_{day.day:%Y%m%d}", "test", day.state.row_count)
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


@pytest.mark.rest
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
def test_day_with_undelivered_entries_is_refused_until_resolved(
    world: World, spoil: Callable[[psycopg.Connection], None], put_right: str, words: str
) -> None:
    world.db.execute("UPDATE holdfast.lane SET last_sequence = 2")
    spoil(world.db)
    attempts = count(world.db, "attempt")
    reply = world.holdfast("db", "prune", "--older-than", "90d", code=ExitCode.DEGRADED)
    assert words in reply.stdout
    assert "Nothing undelivered was dropped" in reply.stdout
    assert count(world.db, "entry") == 3
    if spoil in (_behind, _dead):
        assert count(world.db, "attempt") == attempts
    world.db.execute(put_right.encode())
    world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
    assert outcomes(pruned_days(world.dsn)) == {Outcome.DROPPED}
    assert (count(world.db, "entry"), count(world.db, "attempt")) == (0, 0)


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_disabled_endpoint_keeps_no_day_and_its_loss_is_recorded(world: World) -> None:
    _behind(world.db)
    world.db.execute("UPDATE holdfast.endpoint SET state = 'disabled'")
    pruned = pruned_days(world.dsn)
    assert outcomes(pruned) == {Outcome.DROPPED}
    assert sum(day.state.abandoned or 0 for day in pruned if day.table == "entry") == 3
    rows = world.db.execute("""
        SELECT sum((detail->>'undelivered_to_disabled_endpoints')::int)
        FROM holdfast.operator_action WHERE target LIKE 'entry%'""").fetchone()
    assert rows == (3,)


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_refused_day_keeps_no_other_day(world: World) -> None:
    world.write("m_3")
    world.drain()
    age(world.db, OLD)
    world.db.execute("""
        UPDATE holdfast.lane SET delivered_sequence = 0
        WHERE subject_id = (SELECT id FROM holdfast.subject WHERE name = 'm_1')""")
    pruned = [day for day in pruned_days(world.dsn) if day.state.row_count]
    assert [(day.table, day.outcome) for day in pruned] == [
        ("entry", Outcome.REFUSED),
        ("entry", Outcome.DROPPED),
        ("attempt", Outcome.REFUSED),
        ("attempt", Outcome.DROPPED),
    ]
    assert count(world.db, "entry") == 3


@pytest.mark.rest
def test_today_yesterday_and_the_days_ahead_are_never_dropped(world: World) -> None:
    before = partition_days(world.db, "entry")
    today = datetime.now(UTC).date()
    assert today - timedelta(days=1) in before
    assert pruned_days(world.dsn, older_than=1) == []
    for day in (today - timedelta(days=1), today, today + timedelta(days=3)):
        row = world.db.execute(
            "SELECT outcome FROM holdfast.prune_day('entry', %s, 1, false, 'test', 'test')", [day]
        ).fetchone()
        assert row == ("gone",)
    for older_than in (0, -1, 36_501, None):
        with pytest.raises(psycopg.errors.RaiseException, match="days must be 1 to 36500"):
            world.db.execute("SELECT holdfast.days_older_than(%s)", [older_than])
    assert partition_days(world.db, "entry") == before


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_dry_run_lists_drops_and_changes_nothing(world: World) -> None:
    before = partition_days(world.db, "entry")
    reply = world.holdfast(
        "db", "prune", "--older-than", "90d", "--dry-run", "--json", code=ExitCode.OK
    )
    report = reply.json
    assert (report["older_than_days"], report["dry_run"]) == (90, True)
    assert {day["outcome"] for day in report["days"]} == {"droppable"}
    assert sum(day["row_count"] for day in report["days"] if day["table"] == "entry") == 3
    assert partition_days(world.db, "entry") == before
    assert count(world.db, "operator_action") == 0
    reply = world.holdfast("db", "prune", "--older-than", "90d", code=ExitCode.OK)
    assert re.search(r"entry +\d{4}-\d\d-\d\d +dropped: 3 rows", reply.stdout)
    reply = world.holdfast("db", "prune", "--older-than", "90d", code=ExitCode.NOTHING_MATCHED)
    assert "No day is older than 90 days" in reply.stdout


@pytest.mark.rest
@pytest.mark.parametrize("older_than", ["90", "0d", "-1d", "1.5d", "90 d", "99999d", "\u0661d", ""])
def test_senseless_age_is_one_line(dsn: str, older_than: str) -> None:
    reply = holdfast("db", "prune", f"--older-than={older_than}", dsn=dsn, code=ExitCode.USAGE)
    assert "expected 1d to 36500d. Nothing was dropped." in reply.stderr
    assert len(reply.stderr.strip().splitlines()) == 1


@pytest.mark.rest
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


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_janitor_drops_only_by_the_function(dsn: str) -> None:
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


@pytest.mark.rest
def test_database_of_another_revision_is_one_line(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    with pytest.raises(CommandError, match=r"no schema revision: run .*Nothing was dropped"):
        pruned_days(make_database(None))
    world.db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
    with pytest.raises(CommandError, match="revision 0001"):
        pruned_days(world.dsn)


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


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_batch_routed_during_the_count_keeps_its_day(world: World) -> None:
    _routed_by_nobody(world.db)
    [day] = world.db.execute(
        "SELECT DISTINCT tableoid::regclass::text FROM holdfast.entry"
    ).fetchone() or ("",)
    world.db.execute(WAIT_IN_THE_SCAN.format(day=day.removeprefix("holdfast.")).encode())
    world.db.execute("SELECT pg_advisory_lock(42)")
    with ThreadPoolExecutor(1) as pool:
        pruned = pool.submit(pruned_days, world.dsn)
        eventually(
            lambda: world.db.execute(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
            ).fetchone()
        )
        world.db.execute(ROUTE)
        world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
        world.db.execute("SELECT pg_advisory_unlock(42)")
        assert Outcome.REFUSED in outcomes(pruned.result())
    assert count(world.db, "entry") == 3


INSERT = """
    INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at, priority,
        batch_no, body)
    VALUES (1, 99, now(), gen_random_uuid(), 'payout_hold.block', now(), 0, 1, '{}')
"""
WAITS = """
    SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
WAITS_FOR_TURN = """
    SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_table_in_use_is_waited_for_briefly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(world.dsn) as reader:
        reader.execute("SELECT FROM holdfast.entry")
        with ThreadPoolExecutor(1) as pool:
            pruning = pool.submit(pruned_days, world.dsn, older_than=OLD)
            eventually(lambda: world.db.execute(WAITS).fetchone() != (0,) or pruning.done())
            world.db.execute("SET lock_timeout = '20s'")
            world.db.execute(INSERT.encode())
            pruned = pruning.result()
    assert outcomes(pruned) == {Outcome.BUSY}
    assert module.exit_code(pruned) == ExitCode.DEGRADED
    assert count(world.db, "entry") == 4
    assert outcomes(pruned_days(world.dsn)) == {Outcome.DROPPED}


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_writers_continue_during_the_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(world.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("LOCK TABLE holdfast.dead_letter IN ACCESS EXCLUSIVE MODE")
        pruning = pool.submit(pruned_days, world.dsn)
        eventually(lambda: world.db.execute(WAITS).fetchone() == (1,) or pruning.done())
        held = world.db.execute("""
            SELECT DISTINCT relation::regclass::text FROM pg_locks
            WHERE mode IN ('ShareLock', 'AccessExclusiveLock') AND locktype = 'relation' AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        """).fetchall()
        assert ("holdfast.entry",) not in held
        world.db.execute("SET lock_timeout = '10ms'")
        world.db.execute(INSERT.encode())
        other.rollback()
        pruning.result()


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_endpoint_added_meanwhile_keeps_day(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(world.dsn) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("SELECT FROM holdfast.entry, holdfast.attempt")
        pruning = pool.submit(pruned_days, world.dsn, older_than=OLD - 1)
        eventually(lambda: world.db.execute(WAITS).fetchone() != (0,) or pruning.done())
        world.add_endpoint("http://127.0.0.1:1/", name="ledger", starts_at=None)
        reader.rollback()
        pruned = pruning.result()
    first, *_ = pruned
    assert first.outcome is Outcome.BUSY
    assert count(world.db, "entry") == 3


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_session_killed_before_its_drop_leaves_day_and_no_audit(world: World) -> None:
    before = partition_days(world.db, "entry")
    with psycopg.connect(world.dsn) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("SELECT FROM holdfast.entry")
        pruning = pool.submit(pruned_days, world.dsn)
        eventually(
            lambda: (
                world.db.execute("""
                    SELECT pg_terminate_backend(pid, 10000) FROM pg_locks
                    WHERE NOT granted AND relation = 'holdfast.entry'::regclass""").fetchone()
                or pruning.done()
            )
        )
        with pytest.raises(CommandError, match=r"^the database failed.*run it again\.$"):
            pruning.result()
    assert partition_days(world.db, "entry") == before
    assert count(world.db, "operator_action") == 0
    assert outcomes(pruned_days(world.dsn)) == {Outcome.DROPPED}


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_one_waits_for_the_turn_of_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(world.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.prune_day'))")
        pruning = pool.submit(pruned_days, world.dsn)
        eventually(lambda: world.db.execute(WAITS_FOR_TURN).fetchone() == (1,) or pruning.done())
        other.rollback()
        assert outcomes(pruning.result()) == {Outcome.DROPPED}


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_two_at_once_drop_each_day_once(dsn: str, db: psycopg.Connection) -> None:
    barrier = Barrier(2)

    def run(_: int) -> list[Day]:
        barrier.wait()
        return pruned_days(dsn)

    with ThreadPoolExecutor(2) as pool:
        both = [day for pruned in pool.map(run, range(2)) for day in pruned]
    dropped = [(day.table, day.day) for day in both if day.outcome is Outcome.DROPPED]
    assert len(dropped) == len(set(dropped))
    assert count(db, "operator_action") == len(dropped)
    assert (count(db, "entry"), count(db, "attempt")) == (0, 0)


@pytest.mark.rest
@pytest.mark.usefixtures("delivered")
def test_session_with_a_fixed_snapshot_drops_nothing(dsn: str) -> None:
    with psycopg.connect(dsn) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.RaiseException, match="needs read committed"):
            session.execute(
                "SELECT holdfast.prune_day('entry', '2020-01-01', 90, false, 'test', 'test')"
            )
    slow = f"{dsn} options='-c default_transaction_isolation=serializable'"
    assert outcomes(pruned_days(slow)) == {Outcome.DROPPED}
