"""Every revision up and down, and the states that an upgrade copies."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from alembic.script import ScriptDirectory

from holdfast.migrations import upgrade as module
from holdfast.migrations.upgrade import Upgraded, downgrade, head, script, upgrade
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.requeue import REISSUED, REQUEUED, query_id_of, stream_of
from holdfast.sink.contract.roles import OWNER
from holdfast.sink.requeue import requeue
from tests.support.console.catalogue import everything
from tests.support.dispatch.delivery import OLD, age
from tests.support.dispatch.sender import BLOCK, NOON, RELEASE, WINDOW, decision
from tests.support.job.driver import Driver
from tests.support.job.job_stream import contents
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


Make = Callable[[str | None], str]


def _everything(dsn: str) -> dict[str, list[str]]:
    with psycopg.connect(dsn) as connection:
        return everything(connection)


def test_upgrade_takes_an_empty_database_to_the_newest_revision(make_database: Make) -> None:
    assert upgrade(make_database(None)) == Upgraded(before=None, after=head())


def _module(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m holdfast.migrations` where the command is not installed."""
    program = (
        "import sys; sys.modules |= dict.fromkeys(('typer', 'rich'));"
        " from holdfast.migrations.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_database_is_upgraded_without_the_command(make_database: Make) -> None:
    dsn = make_database(None)
    sql = _module("upgrade", "--sql")
    assert (sql.returncode, sql.stdout) == (0, script(None))
    for _ in range(2):
        done = _module("upgrade", "--dsn", dsn)
        assert (done.returncode, done.stderr) == (0, "")
        assert head() in done.stdout
    assert not upgrade(dsn).changed
    lost = _module("upgrade", "--dsn", f"{dsn} dbname=nowhere")
    assert (lost.returncode, lost.stdout, lost.stderr.count("\n")) == (1, "", 1)


def test_argument_that_is_not_known_is_quoted_without_its_password() -> None:
    unknown = _module("upgrade", "postgresql://app:canary@db/holdfast")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "app:***@db" in unknown.stderr
    assert "canary" not in unknown.stderr


def test_upgrade_twice_is_a_no_op(dsn: str) -> None:
    before = _everything(dsn)
    done = upgrade(dsn)
    assert not done.changed
    assert _everything(dsn) == before


def test_every_object_belongs_to_the_owner_role(db: psycopg.Connection) -> None:
    rows = db.execute("""
        SELECT relname, relowner::regrole::text FROM pg_class
        WHERE relnamespace = 'holdfast'::regnamespace
        UNION ALL
        SELECT proname, proowner::regrole::text FROM pg_proc
        WHERE pronamespace = 'holdfast'::regnamespace
        UNION ALL
        SELECT typname, typowner::regrole::text FROM pg_type
        WHERE typnamespace = 'holdfast'::regnamespace
        UNION ALL
        SELECT nspname, nspowner::regrole::text FROM pg_namespace WHERE nspname = 'holdfast'
    """).fetchall()
    assert rows
    assert [name for name, owner in rows if owner != OWNER] == []


def test_two_upgrades_at_once_do_the_work_once(make_database: Make) -> None:
    dsn = make_database(None)
    barrier = Barrier(2)

    def run() -> Upgraded:
        barrier.wait()
        return upgrade(dsn)

    with ThreadPoolExecutor(2) as pool:
        done = [future.result() for future in [pool.submit(run), pool.submit(run)]]
    assert sorted(one.changed for one in done) == [False, True]
    assert {one.after for one in done} == {head()}


def test_upgrade_waits_for_the_one_before_it(make_database: Make) -> None:
    dsn = make_database(None)
    with psycopg.connect(dsn) as first, ThreadPoolExecutor(1) as pool:
        first.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.migrations'))")
        second = pool.submit(upgrade, dsn)
        with psycopg.connect(dsn, autocommit=True) as observer:
            eventually(
                lambda: (
                    observer.execute("""
                    SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                        AND database = (SELECT oid FROM pg_database
                            WHERE datname = current_database())
                """).fetchone()
                    is not None
                )
            )
        assert not second.done()
        first.rollback()
        assert second.result().changed


def test_downgrade_to_base_leaves_nothing_and_upgrade_restores_all(dsn: str) -> None:
    before = _everything(dsn)
    assert downgrade(dsn, "base") == Upgraded(before=head(), after=None)
    with psycopg.connect(dsn) as connection:
        left = connection.execute("""
            SELECT relname FROM pg_class
            WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'S', 'v')
            UNION ALL SELECT typname FROM pg_type
            WHERE typnamespace = 'holdfast'::regnamespace AND typtype = 'e'
            UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
        """).fetchall()
    assert left == [("alembic_version",)]
    upgrade(dsn)
    assert _everything(dsn) == before


def test_each_revision_goes_down_and_up_again(dsn: str) -> None:
    before = _everything(dsn)
    directory = ScriptDirectory.from_config(module._config())
    for revision in directory.walk_revisions():
        downgrade(dsn, f"{revision.down_revision or 'base'}")
        upgrade(dsn)
        assert _everything(dsn) == before, revision.revision


def test_failed_revision_leaves_no_table_behind(make_database: Make) -> None:
    dsn = make_database(None)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA holdfast AUTHORIZATION holdfast_owner")
        connection.execute("CREATE TABLE holdfast.lane ()")
    with pytest.raises(
        CommandError, match=r'"lane" already exists. No table was changed'
    ) as caught:
        upgrade(dsn)
    assert "\n" not in str(caught.value)
    with psycopg.connect(dsn) as connection:
        left = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
        ).fetchall()
    assert left == [("lane",)]


def test_table_in_use_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", 100)
    monkeypatch.setattr(module, "LOCK_TRIES", 2)
    before = _everything(world.dsn)
    with psycopg.connect(world.dsn) as service:
        service.execute("SELECT FROM holdfast.entry")
        with pytest.raises(
            CommandError, match=r"did not release its lock in time. No table was changed"
        ):
            downgrade(world.dsn, "base")
    assert _everything(world.dsn) == before


WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-db'
        AND wait_event_type = 'Lock'
"""


def test_table_in_use_lets_others_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction reads `endpoint`, which the upgrade changes; a reader queues behind it."""
    monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", 200)
    downgrade(world.dsn, "0012")
    waited: set[int] = set()

    def tries() -> int:
        waited.update(pid for (pid,) in world.db.execute(WAITING))
        return len(waited)

    world.db.execute("SET lock_timeout = '20s'")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(world.dsn) as service:
        service.execute("LOCK TABLE holdfast.endpoint IN ACCESS SHARE MODE")
        upgrading = pool.submit(upgrade, world.dsn)
        eventually(lambda: tries() >= 1)
        world.db.execute("SELECT FROM holdfast.endpoint")
        eventually(lambda: tries() >= 2)
        assert not upgrading.done()
        service.commit()
        assert upgrading.result().after == head()


def test_upgrade_that_deadlocks_with_a_service_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upgrade has locked `replay_item` and waits for the service, which then asks for it."""
    monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", 60_000)
    name = psycopg.conninfo.conninfo_to_dict(world.dsn)["dbname"]
    world.db.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '3s'".encode())
    with ThreadPoolExecutor(1) as pool, psycopg.connect(world.dsn) as service:
        service.execute("SET LOCAL deadlock_timeout = '60s'")
        service.execute("LOCK TABLE holdfast.lane IN ACCESS SHARE MODE")
        downgrading = pool.submit(downgrade, world.dsn, "0012")
        eventually(lambda: world.db.execute(WAITING).fetchone())
        service.execute("SELECT FROM holdfast.replay_item")
        assert not downgrading.done()
        service.commit()
        assert downgrading.result().after == "0012"


def test_table_in_use_names_its_holder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", 100)
    monkeypatch.setattr(module, "LOCK_TRIES", 2)
    with psycopg.connect(world.dsn, application_name="forgotten report") as report:
        report.execute("SELECT FROM holdfast.lane")
        pid = report.info.backend_pid
        named = rf"pid {pid} \(forgotten report, for \d+ s\).*2 tries waited 0.1 s"
        with pytest.raises(CommandError, match=named):
            downgrade(world.dsn, "base")


def test_waiting_upgrade_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_TIMEOUT_MS", 100)
    with psycopg.connect(world.dsn) as first:
        first.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.migrations'))")
        with pytest.raises(CommandError, match=r"another upgrade did not end.*No table was"):
            upgrade(world.dsn)


def test_revision_of_a_newer_version_is_refused(dsn: str, db: psycopg.Connection) -> None:
    db.execute("UPDATE holdfast.alembic_version SET version_num = '9999'")
    with pytest.raises(CommandError, match=r"revision 9999.*does not know.*Nothing was changed"):
        upgrade(dsn)
    with pytest.raises(CommandError, match="9999"):
        script(dsn)


def test_read_only_server_is_named(make_database: Make) -> None:
    dsn = f"{make_database(None)} options='-c default_transaction_read_only=on'"
    with pytest.raises(CommandError, match=r"read-only or a standby. No table was changed"):
        upgrade(dsn)


def test_printed_script_makes_the_same_database(world: World, make_database: Make) -> None:
    dsn = make_database(None)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(script(None).encode())
    assert _everything(dsn) == everything(world.db)
    assert not upgrade(dsn).changed


def test_printed_script_starts_from_the_revision_of_the_database(dsn: str) -> None:
    downgrade(dsn, "0006")
    printed = script(dsn)
    assert "GRANT USAGE ON SCHEMA holdfast" in printed
    assert "CREATE TABLE holdfast.stream" not in printed
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(printed.encode())
    assert upgrade(dsn) == Upgraded(before=head(), after=head())


def test_dsn_may_be_a_uri_with_a_socket_folder(make_database: Make) -> None:
    connection_info = psycopg.conninfo.conninfo_to_dict(make_database(None))
    query = "&".join(f"{k}={v}" for k, v in connection_info.items() if k in ("host", "port"))
    user, password = connection_info["user"], connection_info.get("password", "")
    uri = f"postgresql://{user}:{password}@/{connection_info['dbname']}?{query}"
    assert upgrade(uri).after == head()


def test_downgrade_revision_must_exist(dsn: str) -> None:
    with pytest.raises(CommandError, match="No table was changed"):
        downgrade(dsn, "nowhere")


DAILY = "report.daily"
BEFORE = "SELECT name, last_type, last_occurred_at FROM holdfast.subject ORDER BY 1"
LONG = "p" * 63
ACTS_FOR = 'SELECT name, acts_for FROM holdfast.stream ORDER BY name COLLATE "C"'


def _write(dsn: str, stream: str, *rows: dict[str, Any]) -> None:
    driver = Driver(dsn, stream=stream)
    for number, row in enumerate(rows):
        driver.batch(number, row)
    driver.sink.close()


def _by_hand(dsn: str, stream: str, subject: str, window: int, type_: str) -> None:
    text = (
        f'{{"subject": "{subject}", "type": "{type_}", "key": ["by hand", "{subject}"],'
        f' "occurred_at": "{(NOON + window * WINDOW).isoformat()}", "data": {{}}}}'
    )
    [reply] = requeue(dsn, stream, {1: text}, suppress_repeats=False)
    assert reply.written


def _there_and_back(dsn: str) -> None:
    downgrade(dsn, "0023")
    upgrade(dsn)


def _at(window: int) -> Any:
    return NOON + window * WINDOW


def test_states_of_one_stream_are_copied_with_manual_entries(world: World) -> None:
    _write(world.dsn, LONG, decision("m_1", 1), decision("m_2", 2))
    _by_hand(world.dsn, LONG, "m_1", 5, RELEASE)
    before = contents(world.db)["transition"]
    downgrade(world.dsn, "0023")
    assert world.db.execute(BEFORE).fetchall() == [("m_1", RELEASE, _at(5)), ("m_2", BLOCK, _at(2))]
    upgrade(world.dsn)
    assert contents(world.db)["transition"] == before
    assert before == [(LONG, "m_1", RELEASE, _at(5)), (LONG, "m_2", BLOCK, _at(2))]


def test_states_are_copied_as_the_last_writer_leaves_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is under way when the upgrade begins commits before its subject is copied."""
    monkeypatch.setattr(module, "LOCK_TIMEOUT_MS", 60_000)
    _write(world.dsn, "payouts", decision("m_1", 1))
    downgrade(world.dsn, "0023")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(world.dsn) as batch:
        batch.execute("UPDATE holdfast.subject SET last_type = %s", [RELEASE])
        upgrading = pool.submit(upgrade, world.dsn)
        eventually(lambda: world.db.execute(WAITING).fetchone())
        batch.commit()
        assert upgrading.result().after == head()
    assert contents(world.db)["transition"] == [("payouts", "m_1", RELEASE, _at(1))]


def test_states_of_several_streams_are_computed_from_their_own_entries(world: World) -> None:
    _write(world.dsn, "payouts", decision("m_1", 1), decision("m_2", 1))
    _write(world.dsn, "reports", decision("m_1", 2, DAILY))
    _by_hand(world.dsn, "payouts", "m_2", 4, RELEASE)
    before = contents(world.db)["transition"]
    assert len(before) == 3
    downgrade(world.dsn, "0023")
    # Where the subject is shared, the newest entry gives the type.
    assert world.db.execute(BEFORE).fetchall() == [("m_1", DAILY, _at(2)), ("m_2", RELEASE, _at(4))]
    upgrade(world.dsn)
    assert contents(world.db)["transition"] == before
    _there_and_back(world.dsn)
    assert contents(world.db)["transition"] == before


def test_stream_without_entries_keeps_the_shared_state(world: World) -> None:
    _write(world.dsn, "payouts", decision("m_1", 1), decision("m_2", 1))
    age(world.db, OLD)
    _write(world.dsn, "reports", decision("m_1", 2, DAILY), decision("m_3", 1, DAILY))
    downgrade(world.dsn, "0023")
    for day in world.db.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'holdfast.entry'::regclass"
        " AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') < now() - interval '9 days'"
    ).fetchall():
        world.db.execute(f"DROP TABLE {day[0]}".encode())
    upgrade(world.dsn)
    assert contents(world.db)["transition"] == [
        ("payouts", "m_1", DAILY, _at(2)),
        ("payouts", "m_2", BLOCK, _at(1)),
        ("reports", "m_1", DAILY, _at(2)),
        # Not to be told apart from a stream whose entries were dropped.
        ("reports", "m_2", BLOCK, _at(1)),
        ("reports", "m_3", DAILY, _at(1)),
    ]


@pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])
@pytest.mark.parametrize("base", ["a", LONG], ids=["short", "shortened"])
def test_stream_of_a_job_is_not_one_by_hand(world: World, base: str, suffix: str) -> None:
    own = (stream_of(base, suffix), uuid4())
    # It has been there since before its name was reserved.
    world.db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES (%s, %s)", own)
    job = Driver(world.dsn, stream=own[0], query_id=own[1])
    job.batch(0, decision("m_1", 1))
    job.sink.close()
    _write(world.dsn, base, decision("m_2", 1))
    before = contents(world.db)["transition"]
    _there_and_back(world.dsn)
    assert world.db.execute(ACTS_FOR).fetchall() == sorted([(base, None), (own[0], None)])
    assert contents(world.db)["transition"] == before


@pytest.mark.parametrize("printed", [False, True])
def test_streams_by_hand_act_as_before_after_upgrade(world: World, printed: bool) -> None:
    """Of names of each length, and what was written by hand of what was written by hand."""
    suffixes = [
        (first, second) for first in (REQUEUED, REISSUED) for second in (REQUEUED, REISSUED)
    ]
    for base in ("p" * length for length in range(1, 64)):
        add = "INSERT INTO holdfast.stream (name, query_id, acts_for) VALUES (%s, %s, %s)"
        world.db.execute(add, [base, uuid4(), None])
        for first in (REQUEUED, REISSUED):
            hand = stream_of(base, first)
            world.db.execute(add, [hand, query_id_of(base, first), base])
    for first, second in suffixes:
        hand = stream_of("payouts", first)
        if second == REQUEUED:
            world.db.execute(add, [hand, query_id_of("payouts", first), "payouts"])
        world.db.execute(add, [stream_of(hand, second), query_id_of(hand, second), "payouts"])
    world.db.execute(add, ["payouts", uuid4(), None])
    before = world.db.execute(ACTS_FOR).fetchall()
    assert len(before) == 63 * 3 + 7
    downgrade(world.dsn, "0023")
    if printed:
        world.db.execute(script(world.dsn).encode())
    else:
        upgrade(world.dsn)
    assert world.db.execute(ACTS_FOR).fetchall() == before


def test_earlier_batches_are_not_marked_as_keeping_suppressed_entries(world: World) -> None:
    _write(world.dsn, "payouts", decision("m_1", 1), decision("m_1", 2))
    _there_and_back(world.dsn)
    _write(world.dsn, "reports", decision("m_1", 3))
    rows = world.db.execute("SELECT stream, keeps_suppressed FROM holdfast.batch ORDER BY batch_no")
    assert rows.fetchall() == [("payouts", False), ("payouts", False), ("reports", True)]


def test_a_downgrade_keeps_rows_of_the_future_in_the_quarantine(world: World) -> None:
    far = NOON + timedelta(days=365 * 100)
    _write(world.dsn, "payouts", decision("m_1", 1, occurred_at=far))
    downgrade(world.dsn, "0023")
    reasons = world.db.execute("SELECT reason::text FROM holdfast.quarantine").fetchall()
    assert reasons == [("bad_data",)]


@pytest.mark.parametrize("days", [0, 2])
def test_a_state_ahead_of_its_time_is_marked(dsn: str, db: psycopg.Connection, days: int) -> None:
    """As rows that an older sink took: today's sink has to be told to."""
    now = db.execute("SELECT now()").fetchone()[0]  # type: ignore[index]
    driver = Driver(dsn, future_tolerance=timedelta(days=9))
    driver.batch(0, decision("m_1", 1, occurred_at=now + timedelta(days=days)))
    driver.sink.close()
    _there_and_back(dsn)
    assert db.execute("SELECT ahead FROM holdfast.transition").fetchall() == [(days > 1,)]
