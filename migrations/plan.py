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
from uuid import uuid4

import psycopg
from alembic import command
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import event

from migrations.connect import connection, one_line, statement
from migrations.costs import MEASURED, Kind, Size, UnitCosts
from migrations.phases import Step, steps_after
from migrations.roles import reachable
from migrations.upgrade import LOCK_TIMEOUT_MS, Transaction, current, in_turn, refuse_unknown
from sink.contract.exits import CommandError
from sink.contract.roles import ALL
from sink.contract.tables import SCHEMA

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
class _Here:
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
        self._states = self._look()

    def after(self, *event_: Any) -> None:
        """Record a statement that has run."""
        text = "\n".join(line.rstrip() for line in str(event_[2]).strip().splitlines())
        known, self._states = self._states, self._look()
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

    def _look(self) -> dict[int, _State]:
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
        here = _look_at(dsn)
    except psycopg.Error as error:
        raise CommandError(
            f"the sizes of the tables could not be read: {one_line(error, dsn)}. Nothing was"
            " changed."
        ) from error
    with _scratch(dsn) as scratch:
        if here.before is not None:
            in_turn(scratch.dsn, lambda t: _copy(scratch.inside(t), here))
        revisions = in_turn(
            scratch.dsn, lambda t: _rehearse(scratch.inside(t), here, costs, expand=expand)
        )
    after = revisions[-1].name.partition("_")[0] if revisions else here.before
    return Plan(here.before, after, sum(r.seconds for r in revisions), revisions, costs)


def _look_at(dsn: str) -> _Here:
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
    return _Here(
        before,
        {name: Size(rows, size, total) for name, rows, size, total, *_ in there},
        tuple((name, parent, bounds) for name, *_, parent, bounds in there if parent),
        tuple((name, definition) for name, definition in indexes),
    )


@dataclass(frozen=True, slots=True)
class _Scratch:
    """The database in which the upgrade is rehearsed."""

    dsn: str
    name: str

    def inside(self, transaction: Transaction) -> Transaction:
        """Return the transaction; raises `CommandError` if it is one of another database."""
        self.must_be(transaction.raw)
        return transaction

    def must_be(self, raw: psycopg.Connection) -> None:
        """Raise `CommandError` on a connection to another database, as a pooler may give one."""
        (found,) = raw.execute("SELECT current_database()::text").fetchone() or ("",)
        if found != self.name:
            raise CommandError(
                f"the upgrade is rehearsed in an empty database, and this address leads to"
                f" {found} whatever database is asked for, as a pooler does. No table was changed;"
                " let --dsn name the server itself."
            )


@contextlib.contextmanager
def _scratch(dsn: str) -> Iterator[_Scratch]:
    """Yield a new database of the same server, which is dropped at the end."""
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
                " `holdfast db upgrade --sql`."
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                "the upgrade is rehearsed in an empty database of this server, and none could be"
                f" created: {one_line(error, dsn)}. No table was changed."
            ) from error
        scratch = _Scratch(make_conninfo(dsn, dbname=named), named)
        try:
            with connection(scratch.dsn) as there:
                scratch.must_be(there)
            yield scratch
        finally:
            # The next plan drops what this one cannot, whose connection may be lost.
            with contextlib.suppress(psycopg.Error):
                raw.execute(_DROP.format(sql.Identifier(named)) + sql.SQL(" WITH (FORCE)"))


_DROP = sql.SQL("DROP DATABASE IF EXISTS {}")


def _create(raw: psycopg.Connection) -> str:
    """Create a database that has this session's number in its name, and drop those without one.

    A process that is killed leaves its database. While it runs, its session is there.
    """
    for (left,) in raw.execute(statement("left_plans")).fetchall():
        # Another plan may drop it too, or somebody looks into it.
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
            f' (`CREATE ROLE ... NOLOGIN`) and to run `GRANT ... TO "{raw.info.user}"`.'
        )


def _copy(transaction: Transaction, here: _Here) -> None:
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
    transaction: Transaction, here: _Here, costs: UnitCosts, *, expand: bool
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
