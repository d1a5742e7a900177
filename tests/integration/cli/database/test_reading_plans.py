"""What operators look at is found by the indexes that its files name, among many rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor

from holdfast.dispatcher.operators.common.statements import statement
from tests.benchmarks.common.filled import Filled, fill
from tests.support.servers.databases import copy_of

HELD_UP = """
    UPDATE holdfast.lane SET delivered_sequence = last_sequence - 1, attempt = subject_id % 2,
        due_at = CASE WHEN subject_id % 3 > 0 THEN now() - interval '1 minute' END
    WHERE subject_id % 50 = 0;
    INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at, reason,
        detail, attempts, resolution, resolved_at)
    SELECT endpoint_id, subject_id, last_sequence, gen_random_uuid(), now(), 'rejected', 'x', 1,
        CASE WHEN due_at IS NOT NULL OR delivered_sequence = last_sequence THEN 'dismissed'
        END::holdfast.dead_resolution,
        CASE WHEN due_at IS NOT NULL OR delivered_sequence = last_sequence THEN now() END
    FROM holdfast.lane;
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, resolution, resolved_at)
    SELECT n, 'bad_type', 'x', '{}', 'dismissed', now() FROM generate_series(1, 20000) n;
    INSERT INTO holdfast.operator_action (actor, action, target, reason)
    SELECT 'a', 'b', 'c', 'd' FROM generate_series(1, 20000) n
"""

INDEXES = {
    "subjects/list": {"ix_subject_name", "pk_lane"},
    "subjects/list of ids": {"pk_subject", "pk_lane"},
    "subjects/walk": {"ix_subject_name", "pk_lane"},
    "subjects/held_ids": {"ix_lane_due", "ix_lane_leased", "uq_dead_letter_open", "pk_lane"},
    "subjects/find": {"uq_subject_name"},
    "subjects/lanes": {"pk_lane", "_pkey"},
    "attempts/newest": {"_finished_at_idx", "pk_subject"},
    "attempts/scan_end": {"_finished_at_idx"},
    "attempts/undelivered": {"_endpoint_id_outcome_finished_at_idx", "pk_subject"},
    "audit/list": {"pk_operator_action"},
    "overview/attempts": {"_finished_at_idx"},
    "overview/latency": {"_finished_at_idx", "_pkey"},
    "overview/counts": {"uq_dead_letter_open", "pk_lane", "ix_quarantine_open"},
    "overview/endpoints": {"ix_lane_due", "ix_lane_leased"},
    "overview/stale": {"_finished_at_endpoint_id_idx"},
}

BIG = ("entry", "attempt", "lane", "subject", "dead_letter", "quarantine", "operator_action")


@pytest.fixture(scope="module")
def db(server_dsn: str, template_database: str) -> Iterator[psycopg.Connection]:
    """6,000 entries of as many subjects and their 30,000 attempts; some lanes are held up."""
    with copy_of(server_dsn, template_database) as dsn:
        fill(dsn, Filled(6_000, 6_000))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(HELD_UP)
            connection.execute("VACUUM ANALYZE")
            yield connection


def _plan(db: psycopg.Connection, name: str, values: dict[str, Any]) -> list[str]:
    plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), values).fetchall()
    return [line for (line,) in plan_lines]


@pytest.mark.parametrize("name", INDEXES)
def test_statement_uses_its_indexes(name: str, db: psycopg.Connection) -> None:
    (newest,) = db.execute("SELECT max(finished_at) FROM holdfast.attempt").fetchone() or (None,)
    assert newest is not None
    ids = db.execute("SELECT array_agg(id) FROM holdfast.subject WHERE id < 50").fetchone()
    parameters = {
        "prefix": "m_1",
        "beyond": "m_2",
        "after": "",
        "held": "any",
        "most": 200,
        "scan": 200,
        "dead_scanned": 200,
        "alive_since": newest,
        "ids": ids and ids[0] if name.endswith(" of ids") else None,
        "subject": "m_7",
        "subject_id": 7,
        "waiting_max": 1001,
        "endpoint_id": None,
        "outcome": "rejected" if name == "attempts/undelivered" else None,
        "up_to": newest,
        "since": newest - timedelta(minutes=60),
        "at": newest,
        "until": datetime(9999, 12, 31, tzinfo=UTC),
        **{f"before_{each}": 0 for each in ("endpoint_id", "subject_id", "sequence", "number")},
        "of_a_minute": 20,
        "actor": None,
        "action": None,
        "target": None,
        "before": None,
        "limit": 51,
    }
    if name == "audit/list":
        parameters["since"] = None
    plan = _plan(db, name.removesuffix(" of ids"), parameters)
    text = "\n".join(plan)
    assert {index for index in INDEXES[name] if index in text} == INDEXES[name], text
    for line in plan:
        if "Seq Scan on " in line:
            table = line.partition("Seq Scan on ")[2].split()[0]
            # A day without a row is read as fast as its index.
            assert not table.startswith(BIG) or "rows=1 " in line, text
