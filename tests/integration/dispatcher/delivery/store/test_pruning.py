"""Which days' partitions a statement opens, and that this is decided once where rows are locked.

A statement opens every partition that it cannot rule out when it begins. Where it can rule some out
then, and others by a row that it has read, Postgres 18 confuses them, or ends with "pfree called
with invalid pointer", as soon as somebody changed a row between the statement's snapshot and its
lock: to check that row again it numbers the partitions that are left a second time, in the memory
that the statement goes on with (InitExecPartitionPruneContexts by way of EvalPlanQualStart).
A statement whose rows were locked before it began checks none again, and may have bounds of both.
"""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.dispatcher.delivery.backlog_monitor import ServerMonitor
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.delivery.telemetry.metrics import Measures
from holdfast.dispatcher.delivery.telemetry.server_state import ServerState
from tests.support.dispatch.delivery import age, partition_days
from tests.support.job.decisions import Decisions
from tests.support.statements import packages, statements_of
from tests.support.waiting import eventually
from tests.support.world import World

CHANGES = re.compile(r"\bFOR (NO KEY )?(UPDATE|SHARE)\b|^\s*(UPDATE|DELETE)\b", re.MULTILINE)
PARTITIONED = re.compile(r"\bholdfast\.(entry|attempt)\b")
PARTITION = re.compile(r"(entry|attempt)_(\d{8})")
COMMENT = re.compile(r"--.*")
STATEMENTS = {
    name: text
    for package in packages()
    if package.startswith(("holdfast.dispatcher", "holdfast.sink"))
    for name, statement in statements_of(package).items()
    if CHANGES.search(text := COMMENT.sub("", statement.decode())) and PARTITIONED.search(text)
}
BOUND = re.compile(r"\(*(?:\w+\.)?(?:created_at|finished_at) [<>=]+ (?P<by>.*)")
OF_A_ROW = re.compile(r"\b[a-z]\w*\.[a-z]\w*")
NEVER = "'infinity'"
NOW = "clock_timestamp()"
GIVEN = {
    "claiming/lane_claim": {},
    "routing/lane_route": {"first_written_at": NOW, "last_written_at": NOW, "past": NEVER},
}
LOCKED_BEFORE = {"claiming/lane_claim"}
"""Statements whose rows another one of the same transaction has locked: `lane_due`."""
SETTINGS = f"""
    SELECT set_config('holdfast.lanes', '[]', true),
           set_config('holdfast.written_from', (extract(epoch FROM {NOW}) - 3600)::text, true),
           set_config('holdfast.written_to', (extract(epoch FROM {NOW}) + 3600)::text, true)
"""


@pytest.fixture
def days(db: psycopg.Connection, decisions: Decisions) -> psycopg.Connection:
    """A database with days behind it, and with those ahead that it always has."""
    for _ in range(3):
        decisions.write("m_1")
        age(db, 3)
    decisions.write("m_1")
    return db


def test_locking_statement_prunes_at_start_or_by_rows(days: psycopg.Connection) -> None:
    at_its_start = {name for name, text in STATEMENTS.items() if _pruned_at_its_start(days, text)}
    by_its_rows = {name for name, text in STATEMENTS.items() if _bounds_of_rows(days, text)}
    assert at_its_start == {"claiming/lane_claim", "routing/lane_route", "routing/lane_route_hold"}
    assert {"claiming/lane_rescue", "replaying/replay_claim"} <= by_its_rows
    assert at_its_start & by_its_rows == LOCKED_BEFORE


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (
            "routing/lane_route",
            "e.subject_id = m.subject_id\n",
            "e.subject_id = m.subject_id AND e.created_at <= m.first_created_at\n",
        )
    ],
)
def test_bound_of_a_row_beside_one_of_the_start_is_found(
    days: psycopg.Connection, name: str, before: str, after: str
) -> None:
    text = STATEMENTS[name]
    assert before in text
    assert not _bounds_of_rows(days, text)
    assert _bounds_of_rows(days, text.replace(before, after))


@pytest.mark.parametrize("name", GIVEN)
def test_hot_statements_open_no_day_behind(days: psycopg.Connection, name: str) -> None:
    """However many are stored: what is opened for nothing costs more than the rest of a claim."""
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y%m%d}"
    behind = [day for day in partition_days(days, "entry") if f"{day:%Y%m%d}" < yesterday]
    assert len(behind) > 6
    names = [node.get("Relation Name", "") for node in _plan(days, STATEMENTS[name], GIVEN[name])]
    opened = {match[2] for each in names if (match := PARTITION.fullmatch(each))}
    assert opened
    assert min(opened) >= yesterday


def _pruned_at_its_start(db: psycopg.Connection, text: str) -> bool:
    """Return whether a statement removes partitions when it begins.

    With NULL for every parameter, what is compared with one matches no partition at all.
    """
    return any(node.get("Subplans Removed") for node in _plan(db, text, {}))


def _bounds_of_rows(db: psycopg.Connection, text: str) -> list[str]:
    """Return the conditions by which a statement can rule out partitions for a row."""
    results = []
    for node in _plan(db, text, {}, "SET LOCAL enable_partition_pruning = off"):
        if not PARTITION.fullmatch(node.get("Relation Name", "")):
            continue
        for part in (node.get("Index Cond", ""), node.get("Filter", "")):
            for clause in part.split(" AND "):
                bound = BOUND.match(clause)
                if bound and OF_A_ROW.search(bound["by"]) and "IS NOT" not in clause:
                    results.append(clause)
    return results


def _plan(
    db: psycopg.Connection, text: str, parameters: dict[str, str], setting: str = "SELECT"
) -> list[dict[str, Any]]:
    """Return the nodes of the plan for any parameters, as it begins with those that are given."""
    places: dict[str, int] = {}
    dollars = re.sub(
        r"%\((\w+)\)s", lambda match: f"${places.setdefault(match[1], len(places) + 1)}", text
    )
    values = f"({', '.join(parameters.get(name, 'NULL') for name in places)})" if places else ""
    with db.transaction(force_rollback=True):
        db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        db.execute(SETTINGS.encode())
        db.execute(setting.encode())
        db.execute(f"PREPARE looked_at AS {dollars.replace('%%', '%')}".encode())
        row = db.execute(f"EXPLAIN (FORMAT JSON) EXECUTE looked_at{values}".encode()).fetchone()
        db.execute("DEALLOCATE looked_at")
    assert row
    return [*_nodes(row[0][0]["Plan"])]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)


TRANSACTIONS = 20


@pytest.fixture
def login(dsn: str, db: psycopg.Connection) -> Iterator[str]:
    """A login that may take on the dispatcher's role and nothing else."""
    name = f"dispatch_{uuid4().hex[:8]}"
    user = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'canary'").format(user))
    db.execute(sql.SQL("GRANT holdfast_dispatcher TO {}").format(user))
    yield make_conninfo(dsn, user=name, password="canary")
    db.execute(sql.SQL("DROP ROLE {}").format(user))


def read(dsn: str, telemetry: Telemetry | None = None) -> ServerState:
    """One step of the monitor."""

    async def stepped() -> ServerState:
        watch, measures = Watch(dsn), Measures()
        await watch.open()
        try:
            await ServerMonitor(watch, measures, telemetry or Telemetry()).step()
        finally:
            await watch.close()
        return measures.server

    return asyncio.run(stepped())


def spend_transactions(db: psycopg.Connection) -> None:
    for _ in range(TRANSACTIONS):
        db.execute("SELECT pg_current_xact_id()")


def test_dispatcher_role_can_read_everything_it_needs(login: str) -> None:
    state = read(login)
    assert state.snapshot_ages.keys() == {"holdfast", "other", "prepared", "replication"}
    assert state.snapshot_ages["replication"] == 0
    assert 0 < state.frozen_ages["transaction"] < state.frozen_ages_max["transaction"]
    assert state.frozen_ages["multixact"] >= 0
    assert (state.size_bytes or 0) > 1_000_000
    assert 1 <= (state.connections or 0) <= (state.connections_max or 0)
    assert {each.name for each in state.tables} == {
        *("lane", "endpoint_pace", "replay_item", "batch", "subject", "transition")
    }


@pytest.mark.parametrize(
    ("application", "holder"), [("psql", "other"), ("holdfast sink payouts", "holdfast")]
)
def test_snapshot_of_another_login_is_seen_with_its_age_and_holder(
    world: World, login: str, application: str, holder: str
) -> None:
    with psycopg.connect(world.dsn, application_name=application) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        spend_transactions(world.db)
        assert read(login).snapshot_ages[holder] >= TRANSACTIONS
    assert read(login).snapshot_ages[holder] < TRANSACTIONS


def test_transaction_that_wrote_and_waits_is_a_snapshot_too(world: World, login: str) -> None:
    with psycopg.connect(world.dsn, application_name="psql") as idle:
        idle.execute("SELECT pg_current_xact_id()")
        spend_transactions(world.db)
        assert read(login).snapshot_ages["other"] >= TRANSACTIONS


def test_dead_rows_and_the_last_vacuum_are_seen(db: psycopg.Connection, login: str) -> None:
    def seen(name: str = "endpoint_pace") -> tuple[int, float | None]:
        (table,) = [each for each in read(login).tables if each.name == name]
        return table.dead_rows, table.vacuum_age_seconds

    assert seen() == (0, None)
    db.execute(
        "INSERT INTO holdfast.endpoint (name, url, types, secret_refs)"
        " VALUES ('payouts', 'https://x.example', '{}', '{env:X}')"
    )
    for _ in range(5):
        db.execute("UPDATE holdfast.endpoint_pace SET held_until = now()")
    db.execute("SELECT pg_stat_force_next_flush()")
    eventually(lambda: seen()[0] >= 1)
    db.execute("VACUUM holdfast.endpoint_pace")
    eventually(lambda: seen()[1] is not None)


def test_without_connect_only_the_size_is_unknown(world: World, login: str) -> None:
    name = sql.Identifier(str(conninfo_to_dict(world.dsn)["dbname"]))
    user = sql.Identifier(str(conninfo_to_dict(login)["user"]))
    world.db.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(name, user))
    world.db.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM public").format(name))
    try:
        state = read(login)
    finally:
        world.db.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM {}").format(name, user))
    assert state.size_bytes is None
    assert state.connections


def test_refused_views_are_logged_once_and_end_nothing(world: World, login: str) -> None:
    class Lines(Telemetry):
        def warn(self, line: object, **fields: object) -> None:
            self.counts[str(line)] += 1
            assert "pg_stat_activity" in str(fields["error"])

    telemetry = Lines()

    async def twice() -> ServerState:
        watch, measures = Watch(login), Measures()
        await watch.open()
        try:
            monitor = ServerMonitor(watch, measures, telemetry)
            for _ in range(2):
                assert await monitor.step() is False
        finally:
            await watch.close()
        return measures.server

    world.db.execute("REVOKE SELECT ON pg_stat_activity FROM public")
    assert asyncio.run(twice()) == ServerState()
    assert telemetry.counts == {"server.unread": 1}
