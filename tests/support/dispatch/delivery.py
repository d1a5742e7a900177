"""Reads the delivery tables, and sets up delivery state by hand."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from holdfast.dispatcher.delivery.rules.lifecycle import state_of
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.replays.rules import ReplayFilter, ReplayScope
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.shared.states import LaneState

LANES = """
    SELECT s.name, l.delivered_sequence, l.last_sequence, l.attempt, l.token, l.due_at
    FROM holdfast.lane l JOIN holdfast.subject s ON s.id = l.subject_id
    WHERE l.endpoint_id = coalesce(%s, l.endpoint_id)
"""
ATTEMPTS = """
    SELECT s.name, a.sequence, a.number, a.outcome::text
    FROM holdfast.attempt a JOIN holdfast.subject s ON s.id = a.subject_id
    ORDER BY a.finished_at, s.name, a.sequence, a.number
"""
EXPIRE = """
    UPDATE holdfast.lane SET lease_until = now() - interval '1 second' WHERE token IS NOT NULL
"""
MAKE_DUE = "UPDATE holdfast.lane SET due_at = now() WHERE due_at IS NOT NULL AND token IS NULL"


class LaneRow(NamedTuple):
    """The columns of a lane that tests read."""

    delivered: int
    last: int
    attempt: int
    state: LaneState
    token: UUID | None


class AttemptRow(NamedTuple):
    """An attempt on record."""

    subject: str
    sequence: int
    number: int
    outcome: str


def lanes(db: psycopg.Connection, endpoint_id: int | None = None) -> dict[str, LaneRow]:
    """Lanes by subject."""
    return {
        name: LaneRow(delivered, last, attempt, state_of(token, due, delivered, last), token)
        for name, delivered, last, attempt, token, due in db.execute(LANES, [endpoint_id])
    }


def attempts(db: psycopg.Connection) -> list[AttemptRow]:
    """Attempts in the order in which they were recorded."""
    return [AttemptRow(*row) for row in db.execute(ATTEMPTS)]


def live_dispatcher(db: psycopg.Connection) -> None:
    """Record the heartbeat of a dispatcher that is alive for a minute."""
    db.execute(
        "INSERT INTO holdfast.dispatcher_instance (id, host, pid, version)"
        " VALUES (gen_random_uuid(), 'h', 1, '1')"
    )


def expire_leases(db: psycopg.Connection) -> None:
    """Expire every lease."""
    db.execute(EXPIRE)


def make_due(db: psycopg.Connection) -> None:
    """Let every retry be due now."""
    db.execute(MAKE_DUE)


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[PostgresStore]:
    """An open store, whose first connection is ready.

    Otherwise the pool warms a second one beside the test. Its transaction holds table locks that a
    call of the test which blocks this event loop may wait for, for ever.
    """
    store = PostgresStore(dsn)
    await store.open()
    try:
        await store._sessions._pool.wait()
        yield store
    finally:
        await store.close()


async def stored(dsn: str, work: Callable[[PostgresStore], Coroutine[Any, Any, None]]) -> None:
    """Run `work` with an open store."""
    async with opened(dsn) as store:
        await work(store)


ALL = ReplayFilter(endpoint="payouts")
DEAD = ReplayFilter(endpoint="payouts", states=(ReplayScope.DEAD,))
DELIVERED = ReplayFilter(endpoint="payouts", states=(ReplayScope.DELIVERED,))
WAITING = ReplayFilter(endpoint="payouts", states=(ReplayScope.WAITING,))


def applied(dsn: str, wanted: ReplayFilter, **options: Any) -> UUID:
    """Plan a replay and let dispatchers begin with it."""
    with Replays.connect(dsn) as store:
        id_: UUID = store.plan(wanted, reason="a test", **options)["id"]
        store.apply(id_)
    return id_


def progress(dsn: str, id_: UUID) -> dict[str, Any]:
    """How far a replay has come: its state, and its counts without those that are 0."""
    with Replays.connect(dsn) as store:
        status = store.status(id_)
    counts = {name: count for name, count in status["progress"].items() if count}
    return {"state": status["state"], **counts}


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
        UNION SELECT (suppressed_at AT TIME ZONE 'UTC')::date FROM holdfast.suppressed
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
