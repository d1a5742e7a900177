"""Daily partitions of entry and attempt, and what a row in them is safe from."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pytest

from holdfast.migrations.upgrade import downgrade, upgrade
from holdfast.sink.contract.roles import DISPATCHER, JANITOR, SINK
from tests.support.dispatch.delivery import partition_days
from tests.support.job.decisions import Decisions
from tests.support.world import World

INSERT = """
    INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at, priority,
        batch_no, body)
    VALUES (1, 1, now() + %s, gen_random_uuid(), 'payout_hold.block', now(), 0, 1, '{}')
"""


@pytest.fixture
def sink(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"SET ROLE {SINK}".encode())
        yield connection


def _make(connection: psycopg.Connection, days: int) -> int:
    row = connection.execute("SELECT holdfast.ensure_partitions(%s)", (days,)).fetchone()
    assert row is not None
    return int(row[0])


def test_ensure_partitions_is_idempotent(sink: psycopg.Connection) -> None:
    assert _make(sink, 30) > 0
    assert _make(sink, 30) == 0
    assert _make(sink, 3) == 0


def test_every_day_is_vacuumed_by_rows(world: World, sink: psycopg.Connection) -> None:
    """Routing reads every page of a day that no VACUUM has seen yet."""
    by_rows = {
        "autovacuum_vacuum_insert_scale_factor=0",
        "autovacuum_vacuum_insert_threshold=20000",
    }
    assert _make(sink, 9) > 0
    assert _options(world.db) == {frozenset(by_rows)}
    downgrade(world.dsn, "0020")
    assert _options(world.db) == {frozenset()}
    upgrade(world.dsn)
    assert _options(world.db) == {frozenset(by_rows)}


def _options(db: psycopg.Connection) -> set[frozenset[str]]:
    """Return the different sets of options that days of entries have."""
    rows = db.execute("""
        SELECT coalesce(reloptions, '{}')
        FROM pg_inherits JOIN pg_class ON oid = inhrelid
        WHERE inhparent = 'holdfast.entry'::regclass
    """)
    return {frozenset(options) for (options,) in rows}


def test_many_sessions_make_each_partition_once(dsn: str, db: psycopg.Connection) -> None:
    barrier = Barrier(4)

    def run(_: int) -> int:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"SET ROLE {JANITOR}".encode())
            barrier.wait()
            return _make(connection, 40)

    def count() -> int:
        row = db.execute("SELECT count(*) FROM pg_class WHERE relispartition AND relkind = 'r'")
        return int((row.fetchone() or (0,))[0])

    before = count()
    with ThreadPoolExecutor(4) as pool:
        made = sum(pool.map(run, range(4)))
    assert made > 0
    assert count() - before == made


def test_number_of_days_has_limits(sink: psycopg.Connection) -> None:
    for days in (-1, 367):
        with pytest.raises(psycopg.errors.RaiseException, match="days_ahead must be 0 to 366"):
            _make(sink, days)


@pytest.mark.parametrize("settings", ["DateStyle = 'SQL, DMY'", "TimeZone = 'Pacific/Apia'"])
def test_bounds_are_utc_days_in_every_session(sink: psycopg.Connection, settings: str) -> None:
    sink.execute(f"SET {settings}".encode())
    _make(sink, 60)
    sink.execute("SET TimeZone = 'UTC'")
    sink.execute("SET DateStyle = 'ISO'")
    day = datetime.now(UTC).date() + timedelta(days=50)
    row = sink.execute(
        "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = %s",
        (f"entry_{day:%Y%m%d}",),
    ).fetchone()
    after = day + timedelta(days=1)
    assert row == (f"FOR VALUES FROM ('{day} 00:00:00+00') TO ('{after} 00:00:00+00')",)


def test_sink_adds_entries_of_today_and_later_days(world: World, sink: psycopg.Connection) -> None:
    _make(sink, 30)
    for days in (0, 29):
        sink.execute(INSERT, (timedelta(days=days),))
    world.db.execute(f"SET ROLE {DISPATCHER}".encode())
    row = world.db.execute(
        "SELECT count(*), count(DISTINCT tableoid) FROM holdfast.entry"
    ).fetchone()
    assert row == (2, 2)


def test_entry_of_a_day_without_partition_is_refused_not_lost(sink: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        sink.execute(INSERT, (timedelta(days=400),))


def _drop_from_today(db: psycopg.Connection) -> None:
    today = datetime.now(UTC).date()
    for table in ("entry", "attempt", "suppressed"):
        for day in partition_days(db, table):
            if day >= today:
                db.execute(f"DROP TABLE holdfast.{table}_{day:%Y%m%d}".encode())


def test_running_sink_creates_the_missing_day_at_midnight(world: World) -> None:
    with Decisions(world.dsn) as decisions:
        decisions.write("m_1")
        _drop_from_today(world.db)
        # What it remembers after midnight: that it looked yesterday.
        today = datetime.now(UTC).date()
        decisions._writer._partitions_of = today - timedelta(days=1)
        decisions.write("m_1")
    assert {today, today + timedelta(days=7)} <= partition_days(world.db, "entry") & partition_days(
        world.db, "attempt"
    )
    assert world.db.execute("SELECT sequence FROM holdfast.entry").fetchall() == [(2,)]


def test_run_that_starts_makes_the_days_that_are_missing(dsn: str, db: psycopg.Connection) -> None:
    _drop_from_today(db)
    with Decisions(dsn) as decisions:
        decisions.write("m_1")
    assert db.execute("SELECT sequence FROM holdfast.entry").fetchall() == [(1,)]


def test_dead_maker_leaves_no_half_made_partition(dsn: str, db: psycopg.Connection) -> None:
    before = partition_days(db, "entry")
    with psycopg.connect(dsn) as maker:
        assert _make(maker, 40) > 0
        # It waits for the session to be gone, at most these milliseconds.
        killed = db.execute("SELECT pg_terminate_backend(%s, 10000)", [maker.info.backend_pid])
        assert killed.fetchone() == (True,)
        maker.close()
    assert partition_days(db, "entry") == before
    with psycopg.connect(dsn) as maker:
        assert _make(maker, 40) > 0
    assert partition_days(db, "entry") > before


@pytest.mark.parametrize(
    "statement", ["UPDATE holdfast.entry SET body = '{ }'", "DELETE FROM holdfast.entry"]
)
def test_entry_row_cannot_be_changed_by_the_sink_that_wrote_it(
    world: World, sink: psycopg.Connection, statement: str
) -> None:
    sink.execute(INSERT, (timedelta(0),))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sink.execute(statement.encode())
    assert world.db.execute("SELECT body FROM holdfast.entry").fetchall() == [(b"{}",)]


def test_delivered_attempt_without_a_status_is_refused(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.execute("""
            INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at,
                token, outcome)
            VALUES (1, 1, 1, 1, now(), gen_random_uuid(), 'delivered')
        """)
    assert caught.value.diag.constraint_name == "ck_attempt_delivered"
