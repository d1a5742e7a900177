"""Adds a day's failures to a database that `filled` made, once.

All of it stays consistent: `holdfast check` finds nothing. `payouts` has dead letters that hold
lanes, dead letters that were given up, lanes that wait to be retried, and a few that are leased.
`archive` has been down for three hours with every lane behind; `risk` catches up. There are rows in
quarantine, diverged replays, an audit trail, and replays with 100,000 items.
"""

from uuid import UUID

import psycopg

from holdfast.dispatcher.operators.replays.rules import ReplayFilter, ReplayScope
from holdfast.dispatcher.operators.replays.store import Replays
from tests.benchmarks.common.filled import ENTRIES_A_BATCH, sections

REPLAY_ITEMS = 100_000


def trouble(dsn: str) -> None:
    """Put a day's troubles into a filled database; what is there already is not repeated."""
    texts = sections("troubled.sql")
    copies = [texts.pop(name) for name in list(texts) if name.startswith("copied_")]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET work_mem = '256MB'")
        if not _is(connection, "SELECT FROM holdfast.endpoint WHERE name = 'archive'"):
            with connection.transaction():
                for text in texts.values():
                    connection.execute(text.encode())
            connection.execute("VACUUM ANALYZE")
        if not _is(connection, "SELECT FROM holdfast.replay OFFSET 1"):
            id_ = _planned(dsn)
            with connection.transaction():
                for text in copies:
                    connection.execute(text.encode(), {"id": id_})
            connection.execute("VACUUM ANALYZE")


def _is(connection: psycopg.Connection, sought: str) -> bool:
    return connection.execute(f"SELECT EXISTS ({sought})".encode()).fetchone() == (True,)


def _planned(dsn: str) -> UUID:
    with Replays.connect(dsn) as store:
        known = store.list(limit=1)
        if known:
            id_: UUID = known[0]["id"]
            return id_
        row = store.plan(
            ReplayFilter(
                endpoint="payouts",
                states=(ReplayScope.DELIVERED,),
                stream="payouts",
                first_batch=0,
                last_batch=REPLAY_ITEMS // ENTRIES_A_BATCH,
            ),
            reason="benchmark",
            rate=100,
            limit=REPLAY_ITEMS,
        )
    planned: UUID = row["id"]
    return planned
