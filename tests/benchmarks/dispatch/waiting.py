"""Databases with a large backlog, generated with SQL as sink and router would leave it."""

from typing import Final

import psycopg

from tests.benchmarks.dispatch import jobs

ENTRIES_EACH: Final = 4
"""Of a subject."""

PART: Final = 500_000
"""Entries that one statement makes."""

_SUBJECTS: Final = """
INSERT INTO holdfast.subject (name, last_sequence, last_created_at)
SELECT 'm_' || lpad(n::text, 8, '0'), %(each)s, now()
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n ORDER BY n
"""

_ENTRIES: Final = """
INSERT INTO holdfast.entry (
    subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no, body
)
SELECT s.id, n, statement_timestamp(), md5(s.id || '/' || n)::uuid, 'payout_hold.' || action,
    '2026-11-02T12:15:00Z'::timestamptz + n * interval '15 minutes', 0, 1,
    convert_to(format(
        '{"type":"payout_hold.%%s","timestamp":"2026-11-02T12:15:00Z","sequence":%%s,'
        '"key":"hf_%%s","data":{"action":"%%s","currency":"USD","exposure_minor":5000001,'
        '"limit_minor":5000000,"merchant_id":"%%s","policy_version":"2026-11-01",'
        '"release_level_minor":4500000,"revision":1,"window_end":"2026-11-02T12:15:00Z",'
        '"window_start":"2026-11-02T12:00:00Z"}}',
        action, n, md5(s.id || '/' || n), action, s.name
    ), 'UTF8')
FROM holdfast.subject s
CROSS JOIN generate_series(1, %(each)s::bigint) AS n
CROSS JOIN LATERAL (SELECT ('{block,release}'::text[])[(n + 1) %% 2 + 1]) AS type (action)
WHERE s.id BETWEEN %(first)s::bigint + 1 AND %(last)s::bigint + 1
ORDER BY 1, 2
"""

_LANES: Final = """
INSERT INTO holdfast.lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT p.id, s.id, 0, s.last_sequence, 0, now(), now() - interval '30 minutes'
FROM holdfast.endpoint p CROSS JOIN holdfast.subject s ORDER BY 1, 2
"""

_SIZES: Final = """
SELECT name, pg_total_relation_size('holdfast.' || name) + coalesce(sum(parts.bytes), 0)::bigint
FROM (VALUES ('entry'), ('lane'), ('subject'), ('attempt')) AS wanted (name)
LEFT JOIN LATERAL (
    SELECT pg_total_relation_size(inhrelid) AS bytes
    FROM pg_inherits WHERE inhparent = ('holdfast.' || name)::regclass
) AS parts ON true
GROUP BY name
"""


def fill(dsn: str, entries: int, connections: int, each: int = ENTRIES_EACH) -> None:
    """Let `entries` wait, `each` of a subject, for one endpoint."""
    jobs.add_endpoint(dsn, connections)
    subjects = entries // each
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SET synchronous_commit = off")
        db.execute("SELECT holdfast.ensure_partitions()")
        for first in range(0, subjects, PART // each):
            last = min(first + PART // each, subjects) - 1
            place = {"first": first, "last": last, "each": each}
            db.execute(_SUBJECTS, place)
            db.execute(_ENTRIES, place)
        db.execute(_LANES)
        db.execute("VACUUM (ANALYZE)")


def table_bytes(dsn: str) -> dict[str, int]:
    """Return the size of each hot table, its partitions and indexes included."""
    with psycopg.connect(dsn) as db:
        return {name: int(size) for name, size in db.execute(_SIZES)}
