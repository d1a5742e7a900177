"""Dropping old days of entries and attempts, one transaction a day.

The database decides what may go (`holdfast.prune_day`, which runs as its owner) and writes the
audit row; here a day that is in use is tried again, and what happened is put into words.
"""

import getpass
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

import psycopg
from psycopg.rows import class_row
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

from migrations.connect import connection, one_line, statement
from migrations.upgrade import current, head
from sink.contract.exits import CommandError, ExitCode
from sink.contract.roles import JANITOR

STATEMENT_TIMEOUT = "30min"
"""How long one day may be looked through; nobody waits for it meanwhile."""

TRIES = 8
"""Each stops writers for two seconds at most; with the pauses between them about half a minute."""


class Outcome(StrEnum):
    """What became of a day."""

    DROPPED = "dropped"
    DROPPABLE = "droppable"
    REFUSED = "refused"
    BUSY = "busy"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Found:
    """One row of `prune_day.sql`; counts are None for a day that could not be looked at."""

    outcome: str
    row_count: int | None
    bytes: int | None
    waiting: int | None
    """Entries that wait for an endpoint, once for each endpoint; in `attempt`, their attempts."""
    unrouted: int | None
    dead_letters: int | None
    abandoned: int | None
    """As `waiting`, for endpoints that are disabled: they keep nothing."""
    endpoints: list[str] | None


@dataclass(frozen=True, slots=True)
class Day:
    """A day (UTC) of one table, and what became of it."""

    table: str
    day: date
    found: Found

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.found.outcome)


def prune(dsn: str | None, *, days: int, dry_run: bool, reason: str) -> list[Day]:
    """Drop the days of which every row is more than `days` days old; returns all of them.

    With `dry_run` nothing is changed. Raises `CommandError`, in one line; days that were dropped
    before it stay dropped, and nothing undelivered ever is.
    """
    with _janitor(dsn) as session:
        old = session.execute(statement("days_older_than"), {"days": days}).fetchall()
        return [
            Day(table, day, found)
            for table, day in old
            if (found := _persistently(session, table, day, days, dry_run, reason)).outcome
            != Outcome.GONE
        ]


def exit_code(pruned: Sequence[Day]) -> ExitCode:
    """Return 3 when there was nothing to drop, 4 when a day was refused or in use, else 0."""
    if not pruned:
        return ExitCode.NOTHING_MATCHED
    kept = any(day.outcome in (Outcome.REFUSED, Outcome.BUSY) for day in pruned)
    return ExitCode.DEGRADED if kept else ExitCode.OK


def why(found: Found) -> str:
    """Say what a refused day is kept for, or what a dropped one took with it."""
    names = ", ".join(found.endpoints or ())
    parts = (
        (found.waiting, f"undelivered for {names}"),
        (found.unrouted, "not routed yet"),
        (found.dead_letters, f"dead and not resolved ({names})"),
        (found.abandoned, "undelivered for disabled endpoints"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in parts if count)


def _persistently(
    session: psycopg.Connection, table: str, day: date, days: int, dry_run: bool, reason: str
) -> Found:
    tries = Retrying(
        retry=retry_if_result(lambda found: found.outcome == Outcome.BUSY),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=0.25, max=10),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    found: Found = tries(
        _once,
        session,
        {
            "parent": table,
            "day": day,
            "days": days,
            "dry_run": dry_run,
            "actor": _actor(),
            "reason": reason,
        },
    )
    return found


def _once(session: psycopg.Connection, parameters: dict[str, object]) -> Found:
    # A transaction of its own, which has the session's isolation level.
    with session.transaction(), session.cursor(row_factory=class_row(Found)) as cursor:
        found = cursor.execute(statement("prune_day"), parameters).fetchone()
    if found is None:
        raise LookupError("prune_day.sql returned no row")
    return found


@contextmanager
def _janitor(dsn: str | None) -> Iterator[psycopg.Connection]:
    """Yield a session in the janitor's role, each statement a transaction of its own."""
    with connection(dsn) as session:
        session.autocommit = True
        session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            revision = current(session)
            if revision != head():
                raise CommandError(
                    f"the database has schema revision {revision or 'none'}, this version needs"
                    f" {head()}. Nothing was dropped: run `holdfast db upgrade`, or use the version"
                    " of Holdfast that the database was upgraded for."
                )
            session.execute(f"SET ROLE {JANITOR}".encode())
            session.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'".encode())
            yield session
        except psycopg.errors.InsufficientPrivilege as error:
            raise CommandError(
                f"the user {session.info.user} may not act as {JANITOR}"
                f" ({one_line(error, dsn or '')}). Nothing was dropped; grant it:"
                f" GRANT {JANITOR} TO <user>."
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                f"the database gave up: {one_line(error, dsn or '')}. What was dropped before stays"
                " dropped, each day as a whole, and nothing undelivered is among it; run it again."
            ) from None


def _actor() -> str:
    """Who acts, for the audit trail: the login name, or the number of a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
