"""Drops old days of entries and attempts, one transaction per day.

The database decides what may be dropped (`holdfast.prune_day`, which runs as its owner) and writes
the audit row. This module retries days that are in use and reports the results.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

import psycopg
from psycopg.rows import class_row
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

from holdfast.migrations.connect import connection, one_line, statement
from holdfast.migrations.upgrade import current
from holdfast.sink.contract.compatibility import StrEnum
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.login import login_name
from holdfast.sink.contract.roles import JANITOR
from holdfast.sink.contract.schema import misfit

STATEMENT_TIMEOUT = "30min"
"""Time limit to scan one day; the scan blocks no other session."""

TRIES = 8
"""Each try blocks writers for at most two seconds; all tries take about half a minute."""


class Outcome(StrEnum):
    """The outcome of a day."""

    DROPPED = "dropped"
    DROPPABLE = "droppable"
    REFUSED = "refused"
    BUSY = "busy"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class DayState:
    """One row of `prune_day`; counts are None for a day that could not be scanned."""

    outcome: str
    row_count: int | None
    bytes: int | None
    waiting: int | None
    """Entries that wait for an endpoint, counted per endpoint; in `attempt`, their attempts."""
    unrouted: int | None
    dead_letters: int | None
    abandoned: int | None
    """Like `waiting`, for disabled endpoints, which do not keep a day from being dropped."""
    endpoints: list[str] | None


@dataclass(frozen=True, slots=True)
class Day:
    """A day (UTC) of one table, with its outcome."""

    table: str
    day: date
    state: DayState

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.state.outcome)


def prune(dsn: str | None, *, days: int, dry_run: bool, reason: str) -> list[Day]:
    """Drop the days whose rows are all more than `days` days old; returns all such days.

    `dry_run` changes nothing. Raises `CommandError`; days dropped before it stay dropped. Nothing
    undelivered is ever dropped.
    """
    with _janitor(dsn) as session:
        old = session.execute(statement("days_older_than"), {"days": days}).fetchall()
        return [
            Day(table, day, state)
            for table, day in old
            if (state := _persistently(session, table, day, days, dry_run, reason)).outcome
            != Outcome.GONE
        ]


def exit_code(pruned: Sequence[Day]) -> ExitCode:
    """Return 3 if no day is old enough, 4 if a day was refused or in use, else 0."""
    if not pruned:
        return ExitCode.NOTHING_MATCHED
    kept = any(day.outcome in (Outcome.REFUSED, Outcome.BUSY) for day in pruned)
    return ExitCode.DEGRADED if kept else ExitCode.OK


def why(state: DayState) -> str:
    """Return why a day was refused, or what was dropped with it."""
    names = ", ".join(state.endpoints or ())
    parts = (
        (state.waiting, f"undelivered for {names}"),
        (state.unrouted, "not routed yet"),
        (state.dead_letters, f"dead and not resolved ({names})"),
        (state.abandoned, "undelivered for disabled endpoints"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in parts if count)


def _persistently(
    session: psycopg.Connection, table: str, day: date, days: int, dry_run: bool, reason: str
) -> DayState:
    tries = Retrying(
        retry=retry_if_result(lambda state_of_day: state_of_day.outcome == Outcome.BUSY),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=0.25, max=10),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    state_of_day: DayState = tries(
        _once,
        session,
        {
            "parent": table,
            "day": day,
            "days": days,
            "dry_run": dry_run,
            "actor": login_name(),
            "reason": reason,
        },
    )
    return state_of_day


def _once(session: psycopg.Connection, parameters: dict[str, object]) -> DayState:
    # A separate transaction, with the session's isolation level.
    with session.transaction(), session.cursor(row_factory=class_row(DayState)) as cursor:
        state = cursor.execute(statement("prune_day"), parameters).fetchone()
    if state is None:
        raise LookupError("prune_day returned no row")
    return state


@contextmanager
def _janitor(dsn: str | None) -> Iterator[psycopg.Connection]:
    """Yield an autocommit session in the janitor's role."""
    with connection(dsn) as session:
        session.autocommit = True
        session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            reason = misfit(*current(session))
            if reason is not None:
                raise CommandError(f"{reason}. Nothing was dropped.", code="schema_mismatch")
            session.execute(f"SET ROLE {JANITOR}".encode())
            session.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'".encode())
            yield session
        except psycopg.errors.InsufficientPrivilege as error:
            raise CommandError(
                f"the user {session.info.user} cannot SET ROLE {JANITOR}"
                f" ({one_line(error, dsn or '')}). Nothing was dropped; run GRANT {JANITOR} TO"
                " <user>.",
                code="database_role_missing",
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                f"the database failed: {one_line(error, dsn or '')}. Days dropped before it stay"
                " dropped, each completely, and nothing undelivered was dropped; run it again.",
                code="database_error",
            ) from None
