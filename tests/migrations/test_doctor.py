"""`holdfast db doctor` and `ensure-partitions`."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from holdfast.migrations.cli import app
from holdfast.migrations.doctor import Facts, Holder, IdleTransaction, TransactionIds, gather, judge
from holdfast.migrations.upgrade import downgrade, head, upgrade
from holdfast.sink.contract.checks import Level, exit_code
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.roles import ALL, DISPATCHER, JANITOR, SINK
from holdfast.sink.contract.schema import WORKS_FROM, Code
from tests.support.dispatch.delivery import partition_days
from tests.support.job.decisions import Decisions
from tests.support.world import World

HEALTHY = Facts(
    version=18_00_04,
    standby=False,
    read_only=False,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    encoding="UTF8",
    user="app",
    revision="0007",
    serves_from="0006",
    unreadable=None,
    roles=dict.fromkeys(ALL, True),
    days_ahead={"attempt": 7, "entry": 7},
    clock_difference_seconds=0.1,
    idle=(),
    ids=TransactionIds("app", 199_000_000, 200_000_000),
)

CODE = Code("0007", "0005")


def _run(*arguments: str) -> Result:
    return CliRunner(env={"HOLDFAST_DSN": None}).invoke(app, list(arguments))


def test_healthy_database_passes_every_check() -> None:
    checks = judge(HEALTHY, CODE)
    assert [check for check in checks if check.level != Level.OK or check.advice] == []
    assert exit_code(checks) == ExitCode.OK


@pytest.mark.parametrize(
    ("change", "name", "level"),
    [
        ({"version": 14_00_12}, "server version", Level.FAIL),
        ({"standby": True, "read_only": True}, "primary", Level.FAIL),
        ({"read_only": True}, "primary", Level.FAIL),
        ({"fsync": "off"}, "fsync", Level.FAIL),
        ({"full_page_writes": "off"}, "full_page_writes", Level.FAIL),
        ({"synchronous_commit": "off"}, "synchronous_commit", Level.FAIL),
        ({"encoding": "SQL_ASCII"}, "encoding", Level.FAIL),
        ({"revision": None}, "schema revision", Level.FAIL),
        ({"revision": "0004", "serves_from": None}, "schema revision", Level.FAIL),
        ({"revision": "0006"}, "schema revision", Level.WARN),
        ({"revision": "0009", "serves_from": "0008"}, "schema revision", Level.FAIL),
        ({"revision": None, "unreadable": "no role"}, "schema revision", Level.FAIL),
        ({"roles": dict.fromkeys(ALL[1:], True)}, "roles", Level.FAIL),
        ({"roles": dict.fromkeys(ALL, True) | {SINK: False}}, "memberships", Level.WARN),
        ({"roles": dict.fromkeys(ALL, False)}, "memberships", Level.FAIL),
        ({"days_ahead": {"attempt": 7, "entry": 1}}, "partitions", Level.WARN),
        ({"days_ahead": {"attempt": -1, "entry": 7}}, "partitions", Level.FAIL),
        ({"clock_difference_seconds": -5.5}, "clock", Level.WARN),
        ({"clock_difference_seconds": 61.0}, "clock", Level.FAIL),
        ({"idle": (IdleTransaction(42, "psql", 301),)}, "open transactions", Level.WARN),
        ({"ids": TransactionIds("app", 500_000_000, 200_000_000)}, "transaction IDs", Level.WARN),
        ({"ids": TransactionIds("app", 2_110_000_000, 200_000_000)}, "transaction IDs", Level.FAIL),
    ],
)
def test_fault_is_named_with_what_to_do(change: dict[str, Any], name: str, level: Level) -> None:
    checks = judge(replace(HEALTHY, **change), CODE)
    (check,) = [check for check in checks if check.level != Level.OK]
    assert (check.name, check.level) == (name, level)
    assert check.detail
    assert check.advice
    assert exit_code(checks) == (ExitCode.FAILED if level == Level.FAIL else ExitCode.DEGRADED)


@pytest.mark.parametrize(
    ("holder", "named", "end"),
    [
        (Holder("slot", "old", 10), "replication slot old", "pg_drop_replication_slot('old')"),
        (Holder("prepared", "x", 10), "prepared transaction x", "ROLLBACK PREPARED 'x'"),
        (Holder("session", "42", 10), "pid 42", "pg_terminate_backend(42)"),
    ],
)
def test_holder_of_freezing_is_named_with_its_end(holder: Holder, named: str, end: str) -> None:
    ids = TransactionIds("app", 2_110_000_000, 200_000_000, (holder,))
    check = judge(replace(HEALTHY, ids=ids), CODE)[-1]
    assert named in check.detail
    assert end in check.advice


def test_doctor_passes_a_migrated_database(dsn: str) -> None:
    result = _run("doctor", "--dsn", dsn, "--json")
    assert result.exit_code == ExitCode.OK, result.output
    checks = json.loads(result.output)["checks"]
    assert [check["name"] for check in checks] == [check.name for check in judge(HEALTHY, CODE)]
    assert {check["level"] for check in checks} == {"ok"}


def test_doctor_fails_on_an_old_schema(dsn: str) -> None:
    downgrade(dsn, "0006")
    result = _run("doctor", "--dsn", dsn)
    assert result.exit_code == ExitCode.FAILED
    (line,) = [line for line in result.output.splitlines() if not line.startswith("ok")]
    assert "revision 0006" in line
    assert f"works from {WORKS_FROM} on" in line
    assert "holdfast db upgrade" in line


def test_doctor_fails_before_the_first_upgrade(make_database: Callable[[str | None], str]) -> None:
    result = _run("doctor", "--dsn", make_database(None))
    assert result.exit_code == ExitCode.FAILED
    assert "no schema revision" in result.output
    assert "holdfast db upgrade" in result.output


def test_doctor_sees_a_transaction_left_open(dsn: str) -> None:
    with psycopg.connect(dsn, application_name="forgotten") as other:
        other.execute("SELECT FROM holdfast.stream")
        with psycopg.connect(dsn) as looking:
            facts = gather(looking, idle_seconds=0)
        expected = [(other.info.backend_pid, "forgotten")]
    assert [(session.pid, session.application) for session in facts.idle] == expected


def test_doctor_counts_partitions_without_a_gap(dsn: str, db: psycopg.Connection) -> None:
    row = db.execute("""
        SELECT format('DROP TABLE holdfast.entry_%s',
            to_char((now() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD'))
    """).fetchone()
    assert row is not None
    db.execute(row[0].encode())
    with psycopg.connect(dsn) as looking:
        assert gather(looking).days_ahead == {"attempt": 7, "entry": 1, "suppressed": 7}
    result = _run("doctor", "--dsn", dsn)
    assert result.exit_code == ExitCode.DEGRADED
    assert "entry: 1 day ahead" in result.output
    assert _run("upgrade", "--dsn", dsn).exit_code == ExitCode.OK
    assert _run("doctor", "--dsn", dsn).exit_code == ExitCode.OK


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:s3cret@127.0.0.1:1/db",
        "postgresql://app:s3@s3cret@127.0.0.1:1/db",
        "host=/nowhere user=app password=s3cret",
        "host=/nowhere user=app password='a s3cret b'",
    ],
)
def test_unreachable_database_is_one_line_without_the_password(dsn: str) -> None:
    result = _run("doctor", "--dsn", dsn)
    assert result.exit_code == ExitCode.FAILED
    assert result.output.count("\n") == 1
    assert "did not answer" in result.output
    assert "s3cret" not in result.output
    result = _run("upgrade", "--dsn", dsn)
    assert isinstance(result.exception, CommandError)
    assert "Nothing was changed" in str(result.exception)
    assert "s3cret" not in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize("dsn", ["host=/nowhere password=my s3cret", "postgresql://[s3cret", None])
@pytest.mark.parametrize("command", ["doctor", "upgrade"])
def test_missing_or_unreadable_dsn_is_one_line(command: str, dsn: str | None) -> None:
    result = _run(command, *(["--dsn", dsn] if dsn else []))
    assert isinstance(result.exception, CommandError)
    assert result.exception.exit_code == ExitCode.USAGE
    assert "s3cret" not in str(result.exception)
    assert "\n" not in str(result.exception)


def test_upgrade_says_what_it_did(make_database: Callable[[str | None], str]) -> None:
    dsn = make_database(None)
    result = _run("upgrade", "--dsn", dsn, "--json")
    assert json.loads(result.output) == {"before": None, "after": head(), "changed": True}
    result = _run("upgrade", "--dsn", dsn)
    assert "nothing was changed" in result.output
    result = _run("upgrade", "--sql")
    assert "CREATE TABLE holdfast.stream" in result.output


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
