"""What takes long or asks often must not keep the database from everybody else."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.dispatcher.api import long_reads
from holdfast.dispatcher.api.health import KEPT_SECONDS, Readiness
from holdfast.dispatcher.operators.common.pool import OperatorPool
from tests.support.console.admin_api import Api, serving
from tests.support.waiting import eventually
from tests.support.world import World

LOOK = "/check?endpoint=payouts"


def test_one_check_runs_at_a_time(reading: Api) -> None:
    with ThreadPoolExecutor(1) as worker, psycopg.connect(reading.dsn) as holder:
        holder.execute("LOCK TABLE holdfast.lane IN ACCESS EXCLUSIVE MODE")
        first = worker.submit(reading.ask, "GET", LOOK, "viewer")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: reading.rows(waiting)[0]["count"])
        for path in (LOOK, "/receipts?endpoint=payouts"):
            refused = reading.ask("GET", path, "viewer")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
            assert refused.headers["ratelimit"] == '"long-reads";r=0;t=30'
        holder.rollback()
        assert first.result().status_code == 200
    assert reading.ask("GET", LOOK, "viewer").status_code == 200


def test_look_that_takes_too_long_is_ended(reading: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_reads, "SECONDS_MAX", -1.0)
    for path in ("/check", "/receipts?endpoint=payouts"):
        ended = reading.ask("GET", path, "viewer")
        assert (ended.status_code, "retry-after" in ended.headers) == (503, True)
    monkeypatch.undo()
    assert reading.ask("GET", LOOK, "viewer").status_code == 200


def test_settings_of_a_check_do_not_leak_to_other_requests(reading: Api) -> None:
    assert reading.ask("GET", "/check", "viewer").status_code == 200
    for _ in range(3):
        answer = reading.ask("GET", "/quarantine/1?body=true", "operator")
        assert answer.status_code == 200, "the audit row must be written"


def test_wrong_schema_makes_it_unready_and_is_checked_each_second(world: World) -> None:
    now = [0.0]
    pool = OperatorPool(world.dsn, 1)
    pool.open()
    try:
        readiness = Readiness(pool, lambda: now[0])
        assert readiness.faults() == []
        world.db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
        assert readiness.faults() == []
        now[0] += KEPT_SECONDS
        assert "revision 0001" in readiness.faults()[0]
    finally:
        pool.close()


def test_changed_table_is_read_again_at_once(dsn: str, db: psycopg.Connection) -> None:
    """A statement that a connection had prepared would be refused as long as that lives."""
    with serving(dsn, connections=1) as api:
        for _ in range(10):
            assert api.ask("GET", "/endpoints", "viewer").status_code == 200
        db.execute("ALTER TABLE holdfast.endpoint ALTER url TYPE varchar(4000)")
        for _ in range(2):
            assert api.ask("GET", "/endpoints", "viewer").status_code == 200
