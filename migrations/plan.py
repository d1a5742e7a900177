"""A rehearsal of an upgrade: it runs in a transaction that is rolled back, and says what it locked.

So the locks and times are those of this database, not a guess. The locks are real until the end:
each statement has five seconds, and waits a second for a table in use.
"""

import contextlib
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import psycopg
from alembic import command
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from migrations.connect import connection, statement
from migrations.phases import Step, steps_after
from migrations.upgrade import Transaction, current, in_turn, refuse_unknown
from sink.contract.exits import CommandError, ExitCode

STATEMENT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock on a table that was there before; `mode` is that of pg_locks."""

    table: str
    mode: str
    bytes: int
    """The size of the table with its indexes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement, its time in the rehearsal, and the locks that it was the first to take."""

    revision: str
    """The name of the revision's file."""
    sql: str
    seconds: float
    locks: tuple[Lock, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an upgrade would do; without statements it would do nothing."""

    before: str
    after: str
    statements: tuple[Planned, ...]


class _RehearsedError(Exception):
    """Rolls the rehearsal back."""


@dataclass
class _Recorder:
    """Follows the statements of one transaction."""

    raw: psycopg.Connection
    revision: str = ""
    sql: str = ""
    found: list[Planned] = field(default_factory=list)
    _tables: list[int] = field(default_factory=list)
    _known: set[tuple[str, str]] = field(default_factory=set)
    _began: float = 0.0

    def begin(self) -> None:
        """Remember the tables that are there."""
        self._tables = [oid for (oid,) in self.raw.execute(statement("own_tables"))]

    def before(self, *event_: Any) -> None:
        """Remember a statement that begins."""
        self.sql, self._began = str(event_[2]), monotonic()

    def after(self, *_event: Any) -> None:
        """Record it, with the locks that it took."""
        seconds = monotonic() - self._began
        rows = self.raw.execute(statement("own_locks"), {"tables": self._tables}).fetchall()
        locks = tuple(Lock(*row) for row in rows if row[:2] not in self._known)
        self._known |= {(each.table, each.mode) for each in locks}
        text = "\n".join(line.rstrip() for line in self.sql.strip().splitlines())
        if self.revision:
            self.found.append(Planned(self.revision, text, seconds, locks))


def plan(dsn: str, *, expand: bool = False) -> Plan:
    """Rehearse an upgrade, with `expand` that far, and roll it back.

    Raises `CommandError` if it cannot be run, also for a statement longer than five seconds.
    """
    with connection(dsn) as raw:
        before, _ = current(raw)
    if before is None:
        raise CommandError(
            "the database has no schema, so no table can be locked. Nothing was changed;"
            " `holdfast db upgrade --sql` prints the statements.",
            ExitCode.USAGE,
        )
    refuse_unknown(before)
    rehearsed: list[Plan] = []

    def work(transaction: Transaction) -> None:
        rehearsed[:] = [_rehearse(transaction, before, expand=expand)]
        raise _RehearsedError

    with contextlib.suppress(_RehearsedError):
        in_turn(dsn, work)
    return rehearsed[0]


def _rehearse(transaction: Transaction, before: str, *, expand: bool) -> Plan:
    steps: list[Step] = []
    for each in steps_after(transaction.directory, before):
        if expand and each.serves_from:
            break
        steps.append(each)
    transaction.raw.execute(f"SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'".encode())
    recorder = _Recorder(transaction.raw)
    recorder.begin()
    event.listen(transaction.migrating, "before_cursor_execute", recorder.before)
    event.listen(transaction.migrating, "after_cursor_execute", recorder.after)
    try:
        for step in steps:
            recorder.revision = step.name
            command.upgrade(transaction.config, step.revision)
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise CommandError(
                f"a statement of {recorder.revision} takes longer than {STATEMENT_SECONDS} s here:"
                f" {' '.join(recorder.sql.split())[:200]}. Nothing was changed; upgrade at a quiet"
                " time, and try it on a copy of the database first."
            ) from error
        raise
    found = [each for each in recorder.found if not each.sql.startswith("SELECT")]
    return Plan(before, steps[-1].revision if steps else before, tuple(found))
