"""Which days' partitions a statement opens, and that this is decided once where rows are locked.

A statement opens every partition that it cannot rule out when it begins. Where it can rule some out
then, and others by a row that it has read, Postgres 18 confuses them, or ends with "pfree called
with invalid pointer", as soon as somebody changed a row between the statement's snapshot and its
lock: to check that row again it numbers the partitions that are left a second time, in the memory
that the statement goes on with (InitExecPartitionPruneContexts by way of EvalPlanQualStart).
A statement whose rows were locked before it began checks none again, and may have bounds of both.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import dispatcher, sink
from tests.support.dispatch.aging import age, partition_days
from tests.support.job.decisions import Decisions

FOLDERS = (
    *(folder for folder in Path(dispatcher.__file__).parent.rglob("sql") if folder.is_dir()),
    Path(sink.__file__).parent / "transaction" / "sql",
)
CHANGES = re.compile(r"\bFOR (NO KEY )?(UPDATE|SHARE)\b|^\s*(UPDATE|DELETE)\b", re.MULTILINE)
PARTITIONED = re.compile(r"\bholdfast\.(entry|attempt)\b")
PARTITION = re.compile(r"(entry|attempt)_(\d{8})")
COMMENT = re.compile(r"--.*")
STATEMENTS = {
    str(path.relative_to(folder).with_suffix("")): text
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.sql"))
    if CHANGES.search(text := COMMENT.sub("", path.read_text())) and PARTITIONED.search(text)
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


def test_statement_that_locks_rows_prunes_at_its_start_or_by_its_rows_and_not_both(
    days: psycopg.Connection,
) -> None:
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
        ),
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
def test_statement_of_every_decision_opens_none_of_the_days_behind(
    days: psycopg.Connection, name: str
) -> None:
    """However many are stored: what is opened for nothing costs more than the rest of a claim."""
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y%m%d}"
    behind = [day for day in partition_days(days, "entry") if f"{day:%Y%m%d}" < yesterday]
    assert len(behind) > 6
    names = [node.get("Relation Name", "") for node in _plan(days, STATEMENTS[name], GIVEN[name])]
    opened = {found[2] for each in names if (found := PARTITION.fullmatch(each))}
    assert opened
    assert min(opened) >= yesterday


def _pruned_at_its_start(db: psycopg.Connection, text: str) -> bool:
    """Return whether a statement removes partitions when it begins.

    With NULL for every parameter, what is compared with one matches no partition at all.
    """
    return any(node.get("Subplans Removed") for node in _plan(db, text, {}))


def _bounds_of_rows(db: psycopg.Connection, text: str) -> list[str]:
    """Return the conditions by which a statement can rule out partitions for a row."""
    found = []
    for node in _plan(db, text, {}, "SET LOCAL enable_partition_pruning = off"):
        if not PARTITION.fullmatch(node.get("Relation Name", "")):
            continue
        for part in (node.get("Index Cond", ""), node.get("Filter", "")):
            for clause in part.split(" AND "):
                bound = BOUND.match(clause)
                if bound and OF_A_ROW.search(bound["by"]) and "IS NOT" not in clause:
                    found.append(clause)
    return found


def _plan(
    db: psycopg.Connection, text: str, given: dict[str, str], setting: str = "SELECT"
) -> list[dict[str, Any]]:
    """Return the nodes of the plan for any parameters, as it begins with those that are given."""
    places: dict[str, int] = {}
    dollars = re.sub(
        r"%\((\w+)\)s", lambda found: f"${places.setdefault(found[1], len(places) + 1)}", text
    )
    values = f"({', '.join(given.get(name, 'NULL') for name in places)})" if places else ""
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
