"""No statement that locks rows prunes a partitioned table both when it begins and for each row.

Postgres 18 then prunes the wrong partitions, or ends with "pfree called with invalid pointer", as
soon as somebody changed a row between the statement's snapshot and its lock: to check that row
again it numbers the partitions that are left a second time, in the memory that the statement goes
on with (InitExecPartitionPruneContexts by way of EvalPlanQualStart).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dispatcher.store
import sink
from tests.support.aging import age
from tests.support.decisions import Decisions

FOLDERS = (Path(dispatcher.store.__file__).parent / "sql", Path(sink.__file__).parent / "sql")
CHANGES = re.compile(r"\bFOR (NO KEY )?(UPDATE|SHARE)\b|^\s*(UPDATE|DELETE)\b", re.MULTILINE)
PARTITIONED = re.compile(r"\bholdfast\.(entry|attempt)\b")
COMMENT = re.compile(r"--.*")
STATEMENTS = {
    path.stem: text
    for folder in FOLDERS
    for path in sorted(folder.glob("*.sql"))
    if CHANGES.search(text := COMMENT.sub("", path.read_text())) and PARTITIONED.search(text)
}
AT_ITS_START = {"lane_route": 1, "lane_route_hold": 1}
"""In how many places a statement prunes when it begins: in these, only then. The moments of its
batches are no row's."""


@pytest.fixture
def days(db: psycopg.Connection, decisions: Decisions) -> psycopg.Connection:
    """A database with days behind it, and with those ahead that it always has."""
    decisions.write("m_1")
    age(db, 3)
    return db


def test_statement_that_locks_rows_does_not_prune_before_it_has_one(
    days: psycopg.Connection,
) -> None:
    begun = {name: _pruned_at_its_start(days, text) for name, text in STATEMENTS.items()}
    assert {"lane_claim", "lane_rescue", "replay_claim"} <= begun.keys()
    assert {name: places for name, places in begun.items() if places} == AT_ITS_START


def test_bound_that_is_known_from_the_start_is_found(days: psycopg.Connection) -> None:
    by_row = "e.created_at <= d.latest_created_at"
    claim = STATEMENTS["lane_claim"]
    assert by_row in claim
    known = claim.replace(by_row, "e.created_at <= now() + %(ahead)s::interval")
    assert _pruned_at_its_start(days, known) == 1


def _pruned_at_its_start(db: psycopg.Connection, text: str) -> int:
    """In how many places a statement removes partitions when it begins.

    With NULL for every parameter, what is compared with one matches no partition at all.
    """
    places: dict[str, int] = {}
    dollars = re.sub(
        r"%\((\w+)\)s", lambda found: f"${places.setdefault(found[1], len(places) + 1)}", text
    )
    nulls = f"({', '.join(['NULL'] * len(places))})" if places else ""
    with db.transaction(force_rollback=True):
        db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        db.execute(f"PREPARE looked_at AS {dollars.replace('%%', '%')}".encode())
        row = db.execute(f"EXPLAIN (FORMAT JSON) EXECUTE looked_at{nulls}".encode()).fetchone()
        db.execute("DEALLOCATE looked_at")
    assert row
    return sum(node.get("Subplans Removed", 0) > 0 for node in _nodes(row[0][0]["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)
