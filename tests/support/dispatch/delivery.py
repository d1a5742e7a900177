"""Reads the delivery tables, and sets up delivery state by hand."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from holdfast.dispatcher.delivery.rules.lifecycle import state_of
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
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
