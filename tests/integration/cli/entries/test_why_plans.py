"""What explains an entry finds its rows by the indexes that its files name, among many."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import ClientCursor

from holdfast.dispatcher.operators.common.statements import statement

SUBJECTS, BATCHES, EACH = 10_000, 3_000, 10

FILL = """
    INSERT INTO holdfast.stream (name, query_id) VALUES ('s', gen_random_uuid());
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    SELECT 'e' || n, 'https://a.example/', '{env:S}' FROM generate_series(1, 2) n;
    INSERT INTO holdfast.subject (name, last_sequence)
    SELECT 'm_' || n, 3 FROM generate_series(1, %(subjects)s) n;
    INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
        duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at,
        routed_at)
    SELECT 's', s.query_id, n, gen_random_uuid(), 1, %(each)s, %(each)s, 0, 0, 0, 0, sha256('x'),
        now() - interval '1 hour' + n * interval '1 second', now()
    FROM holdfast.stream s, generate_series(1, %(batches)s) n ORDER BY n;
    INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at, priority,
        batch_no, body)
    SELECT 1 + (b.batch_id * %(each)s + n) %% %(subjects)s,
        1 + (b.batch_id * %(each)s + n) / %(subjects)s, b.written_at,
        md5(b.batch_id || '.' || n)::uuid, 'a', b.written_at, 0, b.batch_no, '{}'
    FROM holdfast.batch b, generate_series(0, %(each)s - 1) n ORDER BY b.batch_no, n;
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at, due_at)
    SELECT p.id, s.id, 1, 3, 0, now() - interval '1 hour', now()
    FROM holdfast.endpoint p, holdfast.subject s;
    INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
        outcome, status)
    SELECT p.id, e.subject_id, e.sequence, 1, now(), gen_random_uuid(), 'delivered', 200
    FROM holdfast.endpoint p, holdfast.entry e;
    INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at, reason,
        detail, attempts, resolution, resolved_at)
    SELECT 1, subject_id, sequence, key, created_at, 'rejected', 'x', 1,
        CASE WHEN subject_id > 50 THEN 'dismissed' END::holdfast.dead_resolution,
        CASE WHEN subject_id > 50 THEN now() END
    FROM holdfast.entry;
    INSERT INTO holdfast.quarantine (batch_no, reason, detail, row)
    SELECT n, 'bad_type', 'x', '{}' FROM generate_series(1, 20000) n;
    INSERT INTO holdfast.operator_action (actor, action, target, reason)
    SELECT 'a', 'b', 'c', 'd' FROM generate_series(1, 20000) n;
"""

INDEXES = {
    "why/subject": {"uq_subject_name"},
    "why/entry": {"_pkey", "uq_batch_batch_no", "pk_subject"},
    "why/standing": {"pk_lane", "ix_lane_due", "uq_dead_letter_open", "_pkey"},
    "why/heads": {"pk_lane", "_pkey"},
    "why/action": {"pk_operator_action"},
    "why/resolved": {"pk_dead_letter"},
    "why/quarantined": {"pk_quarantine"},
    "attempts/list": {"_pkey"},
    "entries/tail_batches": {"uq_batch_batch_no"},
    "entries/tail_newest": {"uq_batch_batch_no"},
    "entries/tail": {"_batch_no_idx", "pk_subject"},
}

ANALYZE = (
    "entry, holdfast.batch, holdfast.subject, holdfast.lane, holdfast.attempt,"
    " holdfast.dead_letter, holdfast.quarantine, holdfast.operator_action"
)
FEW = ("endpoint", "endpoint_pace", "dispatcher_instance", "replay")
"""A row per endpoint, process or plan: read as they are."""


def test_every_statement_of_an_answer_uses_its_indexes(db: psycopg.Connection) -> None:
    ClientCursor(db).execute(FILL, {"subjects": SUBJECTS, "batches": BATCHES, "each": EACH})
    db.execute(f"VACUUM ANALYZE holdfast.{ANALYZE}".encode())
    no, at = db.execute(
        "SELECT batch_no, created_at FROM holdfast.entry WHERE subject_id = 7 AND sequence = 3"
    ).fetchone() or (0, datetime.now(UTC))
    values: dict[str, Any] = {
        "subject": "m_7",
        "subject_id": 7,
        "sequence": 3,
        "key": UUID(int=1),
        "created_at": at,
        "written_at": at,
        "batch_no": no,
        "type": None,
        "endpoint_id": None,
        "endpoint": "e1",
        "action": "endpoint.paused",
        "text": "m_7",
        "due_before_max": 1001,
        "first_sequence": 1,
        "last_sequence": 2**63 - 1,
        "since": datetime(1, 1, 1, tzinfo=UTC),
        "until": datetime(9999, 12, 31, tzinfo=UTC),
        "outcome": None,
        "before_sequence": None,
        "before_number": None,
        "before_endpoint_id": None,
        "after": no,
        "missing": [1, 2],
        "after_subject_id": 0,
        "after_sequence": 0,
        "limit": 51,
    }
    for name, indexes in INDEXES.items():
        parameters = values | ({"subject": None} if name == "entries/tail" else {})
        if name == "why/resolved":
            parameters |= {"endpoint_id": 1}
        plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), parameters).fetchall()
        plan = "\n".join(line for (line,) in plan_lines)
        assert {index for index in indexes if index in plan} == indexes, (name, plan)
        for line in plan.splitlines():
            if "Seq Scan on " in line:
                table = line.partition("Seq Scan on ")[2].split()[0]
                # A day without a row is read as fast as its index.
                assert table in FEW or "rows=1 " in line, (name, plan)
