"""Moves the contents of a database into the past, as if they had been written then."""

from datetime import UTC, date, datetime, timedelta

import psycopg
from psycopg import sql

OLD = 100
"""Days after which nothing is needed any more."""

MOVE = (
    "UPDATE holdfast.entry SET created_at = created_at - %(by)s",
    "UPDATE holdfast.suppressed SET suppressed_at = suppressed_at - %(by)s",
    "UPDATE holdfast.attempt SET finished_at = finished_at - %(by)s",
    "UPDATE holdfast.batch SET written_at = written_at - %(by)s",
    "UPDATE holdfast.subject SET last_created_at = last_created_at - %(by)s",
    "UPDATE holdfast.transition SET updated_at = updated_at - %(by)s",
    "UPDATE holdfast.lane SET head_created_at = head_created_at - %(by)s",
    "UPDATE holdfast.dead_letter SET created_at = created_at - %(by)s",
)


def age(db: psycopg.Connection, days: int) -> date:
    """Move everything `days` days back; returns the day (UTC) that was today."""
    by = timedelta(days=days)
    today = datetime.now(UTC).date()
    with db.transaction():
        # Who calls this in an event loop that also runs a transaction waits for itself.
        db.execute("SET LOCAL lock_timeout = '30s'")
        for table in ("entry", "attempt", "suppressed"):
            # The day before and after: what was written around midnight.
            for day in {used + timedelta(days=each) for used in _used(db) for each in (-1, 0, 1)}:
                _make(db, table, day - by)
        for statement in MOVE:
            db.execute(statement.encode(), {"by": by})
    return today - by


def add_days(db: psycopg.Connection, count: int) -> None:
    """Make the partitions of the last days, as if the database had been used for so long."""
    today = datetime.now(UTC).date()
    for table in ("entry", "attempt", "suppressed"):
        for ago in range(1, count + 1):
            _make(db, table, today - timedelta(days=ago))


def partition_days(db: psycopg.Connection, table: str) -> set[date]:
    """The days of which `table` has a partition."""
    rows = db.execute(
        """
        SELECT to_date(right(c.relname, 8), 'YYYYMMDD') FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
        WHERE p.relname = %s AND p.relkind = 'p'""",
        [table],
    )
    return {day for (day,) in rows}


def _used(db: psycopg.Connection) -> set[date]:
    rows = db.execute("""
        SELECT (created_at AT TIME ZONE 'UTC')::date FROM holdfast.entry
        UNION SELECT (finished_at AT TIME ZONE 'UTC')::date FROM holdfast.attempt""")
    return {day for (day,) in rows}


def _make(db: psycopg.Connection, table: str, day: date) -> None:
    db.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS holdfast.{} PARTITION OF holdfast.{}"
            " FOR VALUES FROM ({}) TO ({})"
        ).format(
            sql.Identifier(f"{table}_{day:%Y%m%d}"),
            sql.Identifier(table),
            sql.Literal(f"{day} 00:00:00+00"),
            sql.Literal(f"{day + timedelta(days=1)} 00:00:00+00"),
        )
    )
    db.execute(
        sql.SQL("ALTER TABLE holdfast.{} OWNER TO holdfast_owner").format(
            sql.Identifier(f"{table}_{day:%Y%m%d}")
        )
    )
