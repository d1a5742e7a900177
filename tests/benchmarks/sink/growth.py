"""The cost of a row by number of stored rows: one database per point, in turns.

The library part of the driver path: what Spark does before it does not know what is stored. The
tables are filled as the sink fills them, in batches with sorted keys, so that the indexes are as
full as they would be.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg

from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.runs import spread
from tests.benchmarks.sink.ours import STREAM
from tests.benchmarks.sink.rounds import checkpoint
from tests.benchmarks.sink.rows import LIMIT, START, WINDOW_S, decisions
from tests.benchmarks.sink.server import Server
from tests.benchmarks.sink.sizes import Sizes
from tests.benchmarks.sink.stopwatch import Stopwatch

_SUBJECTS = """
WITH made AS (
    INSERT INTO holdfast.subject (name, last_sequence, last_created_at)
    SELECT 'm_' || n, last, clock_timestamp()
    FROM generate_series(0, %(subjects)s::bigint - 1) AS n,
        LATERAL (
            SELECT (%(stored)s::bigint - n + %(subjects)s - 1) / %(subjects)s AS last
        ) AS counted
    WHERE last > 0
    ORDER BY n
    RETURNING id, last_sequence AS last
)
INSERT INTO holdfast.transition (subject_id, stream, last_type, last_occurred_at, updated_at)
SELECT id, 'bench', 'payout_hold.' || CASE last %% 2 WHEN 0 THEN 'release' ELSE 'block' END,
    %(start)s + (last - 1) * %(window)s * interval '1 second', clock_timestamp()
FROM made
ORDER BY id
"""

_KEYS = """
INSERT INTO holdfast.entry_key (key, content, batch_no)
SELECT md5('stored ' || n)::uuid AS key, md5('content ' || n)::uuid, %(batch_no)s
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
ORDER BY key
"""

_ENTRIES = """
INSERT INTO holdfast.entry (
    subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no, body
)
SELECT
    subject.id,
    n / %(subjects)s + 1,
    statement_timestamp(),
    md5('stored ' || n)::uuid,
    'payout_hold.' || action,
    %(start)s + n / %(subjects)s * %(window)s * interval '1 second',
    0,
    %(batch_no)s,
    convert_to(format(
        '{"type":"payout_hold.%%s","timestamp":"2026-11-02T12:15:00Z","sequence":%%s,'
        '"key":"hf_%%s","data":{"action":"%%s","currency":"USD","exposure_minor":%%s,'
        '"limit_minor":5000000,"merchant_id":"%%s","policy_version":"2026-11",'
        '"window_end":"2026-11-02T12:15:00Z"}}',
        action, n / %(subjects)s + 1, md5('stored ' || n), action, %(limit)s + n %% 1000, name
    ), 'UTF8')
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
JOIN holdfast.subject ON name = 'm_' || n %% %(subjects)s,
    LATERAL (SELECT ('{block,release}'::text[])[n / %(subjects)s %% 2 + 1]) AS type(action)
ORDER BY 1, 2
"""


@dataclass
class Point:
    """A database with so many rows, and a sink that writes more."""

    stored: int
    writer: Writer
    watch: Stopwatch


def measure(sizes: Sizes, server: Server) -> list[dict[str, Any]]:
    """Return a point for each number of stored rows: microseconds a row."""
    with ExitStack() as stack:
        points = []
        for stored in sizes.stored:
            dsn = stack.enter_context(fresh(server.dsn))
            fill(dsn, stored, sizes)
            writer = Writer(dsn, STREAM)
            stack.callback(writer.close)
            writer.begin_run(uuid4(), uuid4())
            points.append(Point(stored, writer, Stopwatch()))
            print(f"  {stored:,} rows stored", flush=True)
        checkpoint(server.dsn)
        for number in range(sizes.warm + sizes.rounds):
            for point in points:
                _write(point, number, sizes)
    return [_figures(point, sizes) for point in points]


def fill(dsn: str, stored: int, sizes: Sizes) -> None:
    """Store rows as the sink would have, and let the tables be vacuumed."""
    values: dict[str, Any] = {
        "subjects": sizes.subjects,
        "stored": stored,
        "start": START,
        "window": WINDOW_S,
        "limit": LIMIT,
    }
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT holdfast.ensure_partitions()")
        connection.execute(_SUBJECTS, values)
        connection.execute("ANALYZE holdfast.subject")
        batches = range(0, stored, sizes.rows)
        for batch_no, first in enumerate(batches, 1):
            last = min(first + sizes.rows, stored) - 1
            place = {"batch_no": batch_no, "first": first, "last": last}
            with connection.transaction():
                connection.execute(_KEYS, values | place)
                connection.execute(_ENTRIES, values | place)
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('holdfast.batch', 'batch_no'), %s)",
            [len(batches)],
        )
        for table in ("subject", "entry_key", "entry"):
            connection.execute(f"VACUUM (ANALYZE) holdfast.{table}".encode())


def _write(point: Point, number: int, sizes: Sizes) -> None:
    table = decisions(point.stored + number * sizes.rows, sizes.rows, sizes.subjects)
    with point.watch.lap():
        written = point.writer.write(number, InDriver(prepare(BatchInput(table))))
    if written.counts.entries != sizes.rows:
        raise RuntimeError(f"{sizes.rows} rows went in and {written.counts} came of them")


def _figures(point: Point, sizes: Sizes) -> dict[str, Any]:
    laps = point.watch.laps[sizes.warm :]
    return {
        "stored": point.stored,
        "us_per_row": spread([lap.seconds / sizes.rows * 1e6 for lap in laps]),
        "cpu_us_per_row": spread([lap.cpu_s / sizes.rows * 1e6 for lap in laps]),
    }
