"""What an upgrade would do to this database, and about how long it would take.

The missing revisions run in a database of their own on the same server, with the same schema,
partitions and indexes and without rows. What each statement locks, reads and rewrites is observed
there, and the sizes are read here. So no table is locked, and large ones take no longer.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
from alembic import command
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import event

from holdfast.migrations.connect import connection, one_line, statement
from holdfast.migrations.roles import reachable
from holdfast.migrations.upgrade import (
    LOCK_TIMEOUT_MS,
    Step,
    Transaction,
    current,
    refuse_unknown,
    steps_after,
    with_retries,
)
from holdfast.sink.contract.compatibility import StrEnum
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.roles import ALL
from holdfast.sink.contract.tables import SCHEMA

# The time of a statement is estimated from measured unit costs and the sizes of tables.

ROW_BYTES = 100
"""What a row counts for in a table that was never analyzed, so that its rows are not known."""


class Kind(StrEnum):
    """What a statement does to a table that was there before; else it changes the catalogue."""

    READ = "read"
    """It reads all rows, as to validate a constraint."""
    INDEX = "build_index"
    CHANGE = "change_rows"
    """It inserts, updates or deletes rows by what it reads: counted as if it changed all."""
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a table."""

    rows: int
    """As of the last ANALYZE or VACUUM; negative before."""
    bytes: int
    """Without indexes."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Milliseconds; an MB is a million bytes."""

    catalogue_ms: float
    """A statement that changes the catalogue alone."""
    read_ms_per_mb: float
    index_ms_per_million_rows: float
    change_ms_per_mb: float
    """With the indexes of the table, as for a rewrite."""
    rewrite_ms_per_mb: float
    measured: str
    command: str = "python -m tests.benchmarks.upgrade"

    def seconds(self, kind: Kind, size: Size, indexes: int = 1) -> float:
        """Return the estimate for a table of this size; `indexes` are those that are built."""
        rows = size.rows if size.rows >= 0 else size.bytes / ROW_BYTES
        match kind:
            case Kind.READ:
                took = self.read_ms_per_mb * size.bytes / 1e6
            case Kind.INDEX:
                took = self.index_ms_per_million_rows * rows / 1e6 * indexes
            case Kind.CHANGE:
                took = self.change_ms_per_mb * size.total_bytes / 1e6
            case Kind.REWRITE:
                took = self.rewrite_ms_per_mb * size.total_bytes / 1e6
        return took / 1000


MEASURED = UnitCosts(
    catalogue_ms=0.74,
    read_ms_per_mb=0.40,
    index_ms_per_million_rows=446.0,
    change_ms_per_mb=22.2,
    rewrite_ms_per_mb=7.64,
    measured="measured on 2 cores, Postgres 18.4, tables in memory",
)
"""Medians of the benchmark, which can be repeated on any server."""


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
    planned: list[Planned] = field(default_factory=list)
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
        self.planned.append(Planned(text, tuple(locks), tuple(work), not work, seconds))

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
        installed = _read_database(dsn)
    except psycopg.Error as error:
        raise CommandError(
            f"the sizes of the tables could not be read: {one_line(error, dsn)}. Nothing was"
            " changed.",
            code="database_error",
        ) from error
    with rehearsal_database(dsn) as empty:
        if installed.before is not None:
            empty.with_retries(lambda transaction: _copy(transaction, installed))
        revisions = empty.with_retries(
            lambda transaction: _rehearse(transaction, installed, costs, expand=expand)
        )
    after = revisions[-1].name.partition("_")[0] if revisions else installed.before
    return Plan(installed.before, after, sum(r.seconds for r in revisions), revisions, costs)


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
                " changed; try again when it has ended (`holdfast db doctor` shows idle ones).",
                code="table_in_use",
            ) from None
        indexes = raw.execute(statement("index_definitions")).fetchall()
    # A day that was dropped meanwhile has no size.
    existing = [row for row in tables if row[3] is not None]
    return _Installed(
        before,
        {name: Size(rows, size, total) for name, rows, size, total, *_ in existing},
        tuple((name, parent, bounds) for name, *_, parent, bounds in existing if parent),
        tuple((name, definition) for name, definition in indexes),
    )


def _copy(transaction: Transaction, installed: _Installed) -> None:
    """Make the schema of the database, with its days and the indexes that were added to it."""
    command.upgrade(transaction.config, installed.before or "base")
    raw = transaction.raw
    known = {row[0] for row in raw.execute(statement("table_sizes"))}
    for name, parent, bounds in installed.partitions:
        if name not in known:
            made = sql.SQL("CREATE TABLE {} PARTITION OF {} ").format(
                sql.Identifier(SCHEMA, name), sql.Identifier(SCHEMA, parent)
            )
            raw.execute(made + sql.SQL(bounds))
    known = {row[0] for row in raw.execute(statement("index_definitions"))}
    for name, definition in installed.indexes:
        # One over a column that is not Holdfast's cannot be made here, and no revision names it.
        if name not in known:
            with contextlib.suppress(psycopg.Error), raw.transaction():
                raw.execute(definition.encode())


def _rehearse(
    transaction: Transaction, installed: _Installed, costs: UnitCosts, *, expand: bool
) -> tuple[Revision, ...]:
    steps: list[Step] = []
    for each in steps_after(transaction.directory, installed.before):
        if expand and each.serves_from:
            break
        steps.append(each)
    recorder = _Recorder(transaction.raw, installed.sizes, costs)
    recorder.begin()
    event.listen(transaction.migrating, "after_cursor_execute", recorder.after)
    revisions = []
    for step in steps:
        recorder.planned = []
        command.upgrade(transaction.config, step.revision)
        phase = "contract" if step.serves_from else "expand" if step.expands else None
        seconds = sum(each.seconds for each in recorder.planned)
        revisions.append(Revision(step.name, phase, seconds, tuple(recorder.planned)))
    return tuple(revisions)


# An empty database of the same server, in which an upgrade is rehearsed; no other is touched.

T = TypeVar("T")

_DROP = sql.SQL("DROP DATABASE IF EXISTS {}")


@dataclass(frozen=True, slots=True)
class RehearsalDatabase:
    """The database, by its DSN and its name."""

    dsn: str
    name: str

    def with_retries(self, work: Callable[[Transaction], T]) -> T:
        """As `holdfast.migrations.upgrade.with_retries`, in this database and in no other one."""

        def checked(transaction: Transaction) -> T:
            self.require(transaction.raw)
            return work(transaction)

        return with_retries(self.dsn, checked)

    def require(self, raw: psycopg.Connection) -> None:
        """Raise `CommandError` on a connection to another database, as a pooler may give one."""
        (database,) = raw.execute("SELECT current_database()::text").fetchone() or ("",)
        if database != self.name:
            raise CommandError(
                f"the upgrade is rehearsed in an empty database, and this address leads to"
                f" {database} whatever database is asked for, as a pooler does. No table was"
                " changed; let --dsn name the server itself.",
                code="pooled_connection",
            )


@contextlib.contextmanager
def rehearsal_database(dsn: str) -> Iterator[RehearsalDatabase]:
    """Yield a new database of the same server, which is dropped at the end.

    Raises `CommandError` where none can be made, or where it would change roles of the server.
    """
    with connection(dsn) as raw:
        raw.autocommit = True
        _refuse_to_change_roles(raw)
        try:
            named = _create(raw)
        except psycopg.errors.InsufficientPrivilege:
            raise CommandError(
                "the upgrade is rehearsed in an empty database of this server, and the user"
                f" {raw.info.user} may not create one. Nothing was changed. Ask an administrator to"
                f' run `ALTER ROLE "{raw.info.user}" CREATEDB`, or read the statements with'
                " `holdfast db upgrade --sql`.",
                code="permission_denied",
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                "the upgrade is rehearsed in an empty database of this server, and none could be"
                f" created: {one_line(error, dsn)}. No table was changed.",
                code="rehearsal_failed",
            ) from error
        made = RehearsalDatabase(make_conninfo(dsn, dbname=named), named)
        try:
            with connection(made.dsn) as rehearsal:
                made.require(rehearsal)
            yield made
        finally:
            # The next plan drops what this one cannot, whose connection may be lost.
            with contextlib.suppress(psycopg.Error):
                raw.execute(_DROP.format(sql.Identifier(named)) + sql.SQL(" WITH (FORCE)"))


def _create(raw: psycopg.Connection) -> str:
    """Create a database that has this session's number in its name, and drop those without one.

    A process that is killed leaves its database. While it runs, its session is there.
    """
    for (left,) in raw.execute(statement("left_plans")).fetchall():
        # Another plan may drop it too, or a session is connected to it.
        with contextlib.suppress(psycopg.Error):
            raw.execute(_DROP.format(sql.Identifier(left)))
    (pid,) = raw.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    named = f"holdfast_plan_{pid}_{uuid4().hex[:12]}"
    raw.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(named)))
    return named


def _refuse_to_change_roles(raw: psycopg.Connection) -> None:
    """Raise `CommandError` where a rehearsal would make or grant roles, which are the server's."""
    mine = reachable(raw)
    lacking = [role for role in ALL if not mine.get(role)]
    if lacking:
        raise CommandError(
            f"the user {raw.info.user} may not act as {', '.join(lacking)}, and a rehearsal would"
            " make or grant these roles of the whole server. Nothing was changed. Read the"
            " statements with `holdfast db upgrade --sql`, or ask an administrator to make them"
            f' (`CREATE ROLE ... NOLOGIN`) and to run `GRANT ... TO "{raw.info.user}"`.',
            code="permission_denied",
        )
