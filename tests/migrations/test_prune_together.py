"""`holdfast db prune` beside others: whom it stops, and what it does not drop from under them."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from holdfast.migrations import prune as module
from holdfast.migrations.prune import Day, Outcome
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.dispatch.aging import OLD, partition_days
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.pruning import count, outcomes, pruned_days
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

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


@pytest.mark.usefixtures("delivered")
def test_table_in_use_is_waited_for_briefly_and_nobody_is_stopped_for_long(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT FROM holdfast.entry")
        with ThreadPoolExecutor(1) as pool:
            pruning = pool.submit(pruned_days, dsn, older_than=OLD)
            eventually(lambda: db.execute(WAITS).fetchone() != (0,) or pruning.done())
            db.execute("SET lock_timeout = '20s'")
            db.execute(INSERT.encode())
            pruned = pruning.result()
    assert outcomes(pruned) == {Outcome.BUSY}
    assert module.exit_code(pruned) == ExitCode.DEGRADED
    assert count(db, "entry") == 4
    assert outcomes(pruned_days(dsn)) == {Outcome.DROPPED}


@pytest.mark.usefixtures("delivered")
def test_writers_go_on_while_it_looks(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("LOCK TABLE holdfast.dead_letter IN ACCESS EXCLUSIVE MODE")
        pruning = pool.submit(pruned_days, dsn)
        eventually(lambda: db.execute(WAITS).fetchone() == (1,) or pruning.done())
        held = db.execute("""
            SELECT DISTINCT relation::regclass::text FROM pg_locks
            WHERE mode IN ('ShareLock', 'AccessExclusiveLock') AND locktype = 'relation' AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        """).fetchall()
        assert ("holdfast.entry",) not in held
        db.execute("SET lock_timeout = '10ms'")
        db.execute(INSERT.encode())
        other.rollback()
        pruning.result()


@pytest.mark.usefixtures("delivered")
def test_endpoint_that_comes_between_look_and_drop_keeps_the_day(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(dsn) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("SELECT FROM holdfast.entry, holdfast.attempt")
        pruning = pool.submit(pruned_days, dsn, older_than=OLD - 1)
        eventually(lambda: db.execute(WAITS).fetchone() != (0,) or pruning.done())
        add_endpoint(db, "http://127.0.0.1:1/", name="ledger", starts_at=None)
        reader.rollback()
        pruned = pruning.result()
    first, *_ = pruned
    assert first.outcome is Outcome.BUSY
    assert count(db, "entry") == 3


@pytest.mark.usefixtures("delivered")
def test_session_that_is_killed_before_its_drop_leaves_the_day_and_no_audit_row(
    dsn: str, db: psycopg.Connection
) -> None:
    before = partition_days(db, "entry")
    with psycopg.connect(dsn) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute("SELECT FROM holdfast.entry")
        pruning = pool.submit(pruned_days, dsn)
        eventually(
            lambda: (
                db.execute("""
                    SELECT pg_terminate_backend(pid, 10000) FROM pg_locks
                    WHERE NOT granted AND relation = 'holdfast.entry'::regclass""").fetchone()
                or pruning.done()
            )
        )
        with pytest.raises(CommandError, match=r"^the database failed.*run it again\.$"):
            pruning.result()
    assert partition_days(db, "entry") == before
    assert count(db, "operator_action") == 0
    assert outcomes(pruned_days(dsn)) == {Outcome.DROPPED}


@pytest.mark.usefixtures("delivered")
def test_one_waits_for_the_turn_of_another(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.prune_day'))")
        pruning = pool.submit(pruned_days, dsn)
        eventually(lambda: db.execute(WAITS_FOR_TURN).fetchone() == (1,) or pruning.done())
        other.rollback()
        assert outcomes(pruning.result()) == {Outcome.DROPPED}


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


@pytest.mark.usefixtures("delivered")
def test_session_that_sees_one_moment_alone_drops_nothing(dsn: str) -> None:
    with psycopg.connect(dsn) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.RaiseException, match="needs read committed"):
            session.execute(
                "SELECT holdfast.prune_day('entry', '2020-01-01', 90, false, 'test', 'test')"
            )
    slow = f"{dsn} options='-c default_transaction_isolation=serializable'"
    assert outcomes(pruned_days(slow)) == {Outcome.DROPPED}
