"""The facts for `holdfast db doctor`, from one read-only pass over the server."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
from psycopg.rows import dict_row

from holdfast.migrations.connect import statement
from holdfast.migrations.roles import reachable
from holdfast.migrations.upgrade import current
from holdfast.sink.contract.exits import CommandError

IDLE_SECONDS = 300
"""Minimum age of an open, idle transaction to report."""

STATEMENT_TIMEOUT = "10s"


@dataclass(frozen=True, slots=True)
class IdleTransaction:
    """A session with an open transaction, and how long it has been idle."""

    pid: int
    application: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps VACUUM from freezing old rows, and its age in transactions."""

    kind: str
    """`session`, `prepared` (a prepared transaction) or `slot` (a replication slot)."""
    name: str
    """Pid, global identifier, or name."""
    age: int


@dataclass(frozen=True, slots=True)
class TransactionIds:
    """The database of the server with the oldest rows: its age decides when IDs run out."""

    database: str
    age: int
    """In transactions; Postgres stops at about 2.1 billion."""
    freeze_at: int
    """`autovacuum_freeze_max_age`: the age at which autovacuum begins to freeze."""
    holders: tuple[Holder, ...] = ()
    """The oldest ones, of those that are at least `freeze_at` old."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a database, as visible to the user."""

    version: int
    """`server_version_num`: 150000 is Postgres 15.0."""
    standby: bool
    read_only: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    encoding: str
    user: str
    revision: str | None
    serves_from: str | None
    unreadable: str | None
    """Why the revision could not be read; None if it could."""
    roles: Mapping[str, bool]
    """Each existing role, with whether the user can SET ROLE to it."""
    days_ahead: Mapping[str, int]
    """For each partitioned table, days after today with a partition; -1: today has none."""
    clock_difference_seconds: float
    """Database minus this host, at the middle of the round trip."""
    idle: tuple[IdleTransaction, ...]
    ids: TransactionIds


def gather(connection: psycopg.Connection, idle_seconds: int = IDLE_SECONDS) -> Facts:
    """Read the facts; changes nothing."""
    connection.autocommit = True
    connection.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'".encode())
    with connection.cursor(row_factory=dict_row) as cursor:
        settings = cursor.execute(statement("settings")).fetchone() or {}
        ahead = cursor.execute(statement("partitions_ahead")).fetchall()
        idle = cursor.execute(statement("idle_transactions"), {"seconds": idle_seconds}).fetchall()
        ids = cursor.execute(statement("transaction_ids")).fetchone() or {}
        holders = cursor.execute(statement("horizon"), {"age": ids["freeze_at"]}).fetchall()
    (revision, serves_from), unreadable = _revision(connection)
    return Facts(
        **settings,
        user=connection.info.user,
        revision=revision,
        serves_from=serves_from,
        unreadable=unreadable,
        roles=reachable(connection),
        days_ahead={row["parent"]: row["days"] for row in ahead},
        clock_difference_seconds=_clock_difference(connection),
        idle=tuple(
            IdleTransaction(row["pid"], row["application_name"], row["seconds"]) for row in idle
        ),
        ids=TransactionIds(**ids, holders=tuple(Holder(**row) for row in holders)),
    )


def _revision(
    connection: psycopg.Connection,
) -> tuple[tuple[str | None, str | None], str | None]:
    try:
        return current(connection), None
    except CommandError as error:
        return (None, None), str(error)


def _clock_difference(connection: psycopg.Connection) -> float:
    before = datetime.now(UTC)
    row = connection.execute(statement("clock")).fetchone()
    after = datetime.now(UTC)
    there: datetime = row[0] if row else after
    return (there - (before + (after - before) / 2)).total_seconds()
