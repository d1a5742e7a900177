"""What an upgrade would do to this database, and about how long it would take.

The missing revisions run in a database of their own on the same server, with the same schema,
partitions and indexes and without rows. What each statement locks, reads and rewrites is observed
there, and the sizes are read here. So no table is locked, and large ones take no longer.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from alembic import command
from psycopg import sql
from sqlalchemy import event

from holdfast.migrations.connect import connection, one_line, statement
from holdfast.migrations.costs import MEASURED, Kind, Size, UnitCosts
from holdfast.migrations.phases import Step, steps_after
from holdfast.migrations.rehearsal_database import rehearsal_database
from holdfast.migrations.upgrade import LOCK_TIMEOUT_MS, Transaction, current, refuse_unknown
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.tables import SCHEMA

_CHANGES_ROWS = re.compile(r"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock on a table that was there before; `mode` is that of pg_locks."""

    table: str
    mode: str


@dataclass(frozen=True, slots=True)
class Work:
    """A table that a statement reads or rewrites."""

    kind: Kind
    table: str
    rows: int | None
    """None: the table was never analyzed."""
    bytes: int
    """Without indexes."""
    total_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement, and the locks that it is the first of the upgrade to take."""

    sql: str
    locks: tuple[Lock, ...]
    work: tuple[Work, ...]
    catalogue_only: bool
    seconds: float
    """The estimate."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The statements of a revision; the name is that of its file."""

    name: str
    phase: str | None
    """expand, contract, or None for a revision from before the phases."""
    seconds: float
    statements: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an upgrade would do; without revisions it would do nothing."""

    before: str | None
    after: str | None
    seconds: float
    revisions: tuple[Revision, ...]
    unit_costs: UnitCosts


@dataclass(frozen=True, slots=True)
class _State:
    """What was observed of a table in the rehearsal."""

    name: str
    file: int
    scans: int
    indexes: frozenset[int]
    locks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Installed:
    """The database that is to be upgraded, as far as its catalogue says it."""

    before: str | None
    sizes: Mapping[str, Size]
    partitions: tuple[tuple[str, str, str], ...]
    """Name, parent, bounds."""
    indexes: tuple[tuple[str, str], ...]
    """Name, definition."""


@dataclass
class _Recorder:
    """Follows the statements of one transaction."""

    raw: psycopg.Connection
    sizes: Mapping[str, Size]
    costs: UnitCosts
    found: list[Planned] = field(default_factory=list)
    _states: dict[int, _State] = field(default_factory=dict)

    def begin(self) -> None:
        """Remember the tables that are there."""
        self._states = self._tables()

    def after(self, _connection: Any, _cursor: Any, ran: str, *_: Any) -> None:
        """Record a statement that has run, as SQLAlchemy's `after_cursor_execute` calls it."""
        text = "\n".join(line.rstrip() for line in ran.strip().splitlines())
        known, self._states = self._states, self._tables()
        if text.startswith("SELECT"):
            return
        pairs = [(known[oid], now) for oid, now in self._states.items() if oid in known]
        locks = [
            Lock(now.name, mode)
            for was, now in pairs
            for mode in now.locks
            if mode not in was.locks
        ]
        work = [each for was, now in pairs for each in self._work(text, was, now)]
        seconds = self.costs.catalogue_ms / 1000 + sum(each.seconds for each in work)
        self.found.append(Planned(text, tuple(locks), tuple(work), not work, seconds))

    def _tables(self) -> dict[int, _State]:
        rows = self.raw.execute(statement("table_state")).fetchall()
        known = self._states
        return {
            oid: _State(name, file, scans, frozenset(indexes), tuple(locks))
            for oid, name, file, scans, indexes, locks in rows
            if not known or oid in known
        }

    def _work(self, text: str, was: _State, now: _State) -> Iterator[Work]:
        size = self.sizes.get(was.name)
        built = len(now.indexes - was.indexes)
        if size is None:
            return
        if now.file != was.file:
            kind = Kind.REWRITE
        elif built:
            kind = Kind.INDEX
        elif now.scans > was.scans:
            kind = Kind.CHANGE if _CHANGES_ROWS.search(text) else Kind.READ
        else:
            return
        rows = size.rows if size.rows >= 0 else None
        seconds = self.costs.seconds(kind, size, built)
        yield Work(kind, was.name, rows, size.bytes, size.total_bytes, seconds)


def plan(dsn: str, *, expand: bool = False, costs: UnitCosts = MEASURED) -> Plan:
    """Estimate an upgrade, with `expand` that far.

    Raises `CommandError` if it cannot be rehearsed, also without the right to create a database.
    """
    try:
        here = _read_database(dsn)
    except psycopg.Error as error:
        raise CommandError(
            f"the sizes of the tables could not be read: {one_line(error, dsn)}. Nothing was"
            " changed."
        ) from error
    with rehearsal_database(dsn) as empty:
        if here.before is not None:
            empty.in_turn(lambda transaction: _copy(transaction, here))
        revisions = empty.in_turn(
            lambda transaction: _rehearse(transaction, here, costs, expand=expand)
        )
    after = revisions[-1].name.partition("_")[0] if revisions else here.before
    return Plan(here.before, after, sum(r.seconds for r in revisions), revisions, costs)


def _read_database(dsn: str) -> _Installed:
    with connection(dsn) as raw:
        before, _ = current(raw)
        refuse_unknown(before)
        # A size is read under the lock of a reader.
        raw.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}".encode())
        try:
            tables = raw.execute(statement("table_sizes")).fetchall()
        except psycopg.errors.LockNotAvailable:
            raise CommandError(
                "a session holds a table exclusively, so its size cannot be read. Nothing was"
                " changed; try again when it has ended (`holdfast db doctor` shows idle ones)."
            ) from None
        indexes = raw.execute(statement("index_definitions")).fetchall()
    # A day that was dropped meanwhile has no size.
    there = [row for row in tables if row[3] is not None]
    return _Installed(
        before,
        {name: Size(rows, size, total) for name, rows, size, total, *_ in there},
        tuple((name, parent, bounds) for name, *_, parent, bounds in there if parent),
        tuple((name, definition) for name, definition in indexes),
    )


def _copy(transaction: Transaction, here: _Installed) -> None:
    """Make the schema of the database, with its days and the indexes that were added to it."""
    command.upgrade(transaction.config, here.before or "base")
    raw = transaction.raw
    known = {row[0] for row in raw.execute(statement("table_sizes"))}
    for name, parent, bounds in here.partitions:
        if name not in known:
            made = sql.SQL("CREATE TABLE {} PARTITION OF {} ").format(
                sql.Identifier(SCHEMA, name), sql.Identifier(SCHEMA, parent)
            )
            raw.execute(made + sql.SQL(bounds))
    known = {row[0] for row in raw.execute(statement("index_definitions"))}
    for name, definition in here.indexes:
        # One over a column that is not Holdfast's cannot be made here, and no revision names it.
        if name not in known:
            with contextlib.suppress(psycopg.Error), raw.transaction():
                raw.execute(definition.encode())


def _rehearse(
    transaction: Transaction, here: _Installed, costs: UnitCosts, *, expand: bool
) -> tuple[Revision, ...]:
    steps: list[Step] = []
    for each in steps_after(transaction.directory, here.before):
        if expand and each.serves_from:
            break
        steps.append(each)
    recorder = _Recorder(transaction.raw, here.sizes, costs)
    recorder.begin()
    event.listen(transaction.migrating, "after_cursor_execute", recorder.after)
    revisions = []
    for step in steps:
        recorder.found = []
        command.upgrade(transaction.config, step.revision)
        phase = "contract" if step.serves_from else "expand" if step.expands else None
        seconds = sum(each.seconds for each in recorder.found)
        revisions.append(Revision(step.name, phase, seconds, tuple(recorder.found)))
    return tuple(revisions)
