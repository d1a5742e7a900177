"""Upgrades a database to the newest revision, completely or not at all.

It uses one connection and two transactions: the first creates roles and schema
(`holdfast.migrations.roles`), the second runs all missing revisions as `holdfast_owner`, which
owns every object. An advisory lock serializes upgrades of a database. A revision waits only briefly
for a table lock of a service, because all other sessions queue behind a waiting ALTER TABLE; the
upgrade is then rolled back and tried again, so that they continue in between. It is also tried
again after a deadlock with a service, which may lock the same tables in another order.
"""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError as AlembicError
from psycopg.rows import class_row
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from holdfast.migrations import roles
from holdfast.migrations.connect import connection, one_line, statement
from holdfast.sink.contract.dsn import answer_lost
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.login import login_name
from holdfast.sink.contract.roles import ALL, OWNER, SEARCH_PATH
from holdfast.sink.contract.schema import READ, SESSIONS_SINCE, records
from holdfast.sink.contract.tables import SCHEMA

SERVER_VERSION_MIN = 15
"""The oldest supported major version of Postgres; tested with 15, 16 and 18."""

VERSIONS = Path(__file__).parent / "versions"
"""The revisions."""

TURN_TIMEOUT_MS = 300_000
"""How long an upgrade waits for another upgrade of the same database."""

LOCK_TIMEOUT_MS = 1_000
"""How long a revision waits for a table lock, and others behind it."""

LOCK_TRIES = 10
LOCK_PAUSE_SECONDS = 8.0
"""How often an upgrade is tried, and the longest pause between two tries."""

STATEMENT_TIMEOUT_MS = 600_000

T = TypeVar("T")

# Alembic's `op` and `context` are globals, so only one thread at a time may use them.
_alembic = Lock()


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The revisions before and after an upgrade; None: the database has none."""

    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def upgrade(dsn: str, *, expand: bool = False, force: bool = False) -> Upgraded:
    """Upgrade the database of `dsn` to the newest revision; safe to repeat.

    With `expand` it stops before the first contract revision. Raises `CommandError` if it cannot,
    and, unless forced, for a contract revision while older code runs; then no table was changed.
    """

    def work(transaction: Transaction) -> Upgraded:
        before = _revision(transaction.migrating)
        refuse_unknown(before)
        after = _climb(transaction, before, expand=expand, force=force)
        if after is not None and records(after):
            transaction.raw.execute(statement("forget_sessions"))
        transaction.raw.execute(statement("ensure_partitions"))
        return Upgraded(before, after)

    return with_retries(dsn, work)


def downgrade(dsn: str, revision: str) -> Upgraded:
    """Downgrade the database to `revision`, whatever it drops; "base" drops all tables.

    Raises `CommandError` if it cannot; then no table was changed.
    """

    def work(transaction: Transaction) -> Upgraded:
        before = _revision(transaction.migrating)
        refuse_unknown(before)
        command.downgrade(transaction.config, revision)
        return Upgraded(before, _revision(transaction.migrating))

    return with_retries(dsn, work)


def undo(dsn: str, revision: str, reason: str, *, force: bool = False) -> Upgraded:
    """Undo the expand revisions above `revision`, with a row of the audit trail.

    Raises `CommandError` for a revision of another kind, and, unless forced, while code runs that
    does not work on `revision`; then no table was changed.
    """

    def work(transaction: Transaction) -> Upgraded:
        before = _revision(transaction.migrating)
        refuse_unknown(before)
        known = {each.revision for each in steps_after(transaction.directory, None)}
        if before is None or revision not in known or revision > before:
            raise CommandError(
                f"the database has revision {before or 'none'}, and {revision} is not a revision"
                " before it. Nothing was changed.",
                ExitCode.USAGE,
                code="invalid_revision",
            )
        above = steps_after(transaction.directory, revision)
        undone = [each for each in above if each.revision <= before]
        sessions = running(transaction.raw) if undone and records(before) else []
        refuse_downgrade(revision, undone, sessions, force=force)
        command.downgrade(transaction.config, revision)
        if undone:
            row = {"actor": login_name(), "target": f"revision {revision}", "reason": reason}
            row["detail"] = json.dumps({"before": before, "after": revision, "forced": force})
            transaction.raw.execute(statement("audit_downgrade"), row)
        return Upgraded(before, _revision(transaction.migrating))

    return with_retries(dsn, work)


def script(dsn: str | None) -> str:
    """Return the SQL that `upgrade` would run, for an administrator to review or run with psql.

    It starts from the revision of the database, or from an empty database if `dsn` is None.
    """
    start = None
    if dsn:
        with connection(dsn) as raw:
            start, _ = current(raw)
            refuse_unknown(start)
    out = io.StringIO()
    out.write(f"SET search_path = {SEARCH_PATH};\n\n")
    for step in roles.STEPS:
        out.write(f"{step};\n\n")
    out.write(f"SET ROLE {OWNER};\n\n")
    with _alembic:
        command.upgrade(_config(output=out), f"{start or 'base'}:head", sql=True)
    out.write(f"{statement('ensure_partitions').decode().rstrip()};\n\nRESET ROLE;\n")
    return out.getvalue()


def current(raw: psycopg.Connection) -> tuple[str | None, str | None]:
    """Return the revision of the database and the oldest code that it serves; None without them.

    Raises `CommandError` if the user cannot SET ROLE to a role that can read them.
    """
    row = raw.execute(statement("installed")).fetchone()
    if not row or not row[0]:
        return None, None
    mine = roles.reachable(raw)
    role = next((role for role in ALL if mine.get(role)), None)
    if role is None:
        raise CommandError(
            f"the user {raw.info.user} is not a member of any Holdfast role, so it cannot read the"
            " schema revision. Nothing was changed; see docs/operators/database.md for the roles.",
            code="database_role_missing",
        )
    with raw.transaction():
        raw.execute(f"SET LOCAL ROLE {role}".encode())
        found = raw.execute(READ).fetchone()
    return (found[0], found[1]) if found else (None, None)


def head() -> str:
    """Return the newest revision of this version of Holdfast."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def refuse_unknown(revision: str | None) -> None:
    """Raise `CommandError` for a revision of a newer Holdfast version."""
    script_directory = ScriptDirectory.from_config(_config())
    known = {script.revision for script in script_directory.walk_revisions()}
    if revision is not None and revision not in known:
        raise CommandError(
            f"the database has schema revision {revision}, which this version of Holdfast does not"
            f" know (its newest is {head()}). Nothing was changed. Use the Holdfast version that"
            " upgraded the database.",
            code="unknown_revision",
        )


def _config(output: io.StringIO | None = None, migrating: Connection | None = None) -> Config:
    config = Config(output_buffer=output, attributes={"connection": migrating})
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("version_locations", str(VERSIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@dataclass(frozen=True, slots=True)
class Transaction:
    """The open transaction of an upgrade, in the owner's role."""

    raw: psycopg.Connection
    migrating: Connection
    """`raw` as Alembic takes it."""
    config: Config
    directory: ScriptDirectory


def _climb(
    transaction: Transaction, before: str | None, *, expand: bool, force: bool
) -> str | None:
    """Run what is missing, as `upgrade` says; returns the revision that the database has then."""
    steps = [each for each in steps_after(transaction.directory, before) if each.serves_from]
    if steps:
        command.upgrade(transaction.config, steps[0].before)
    # A new database has no processes. Those of 0031 can be read when 0032 has run.
    if steps and before is not None and not expand and not force:
        sessions = running(transaction.raw)
        for each in steps:
            refuse_contract(each, sessions)
    if not steps or not expand:
        command.upgrade(transaction.config, "head")
    return _revision(transaction.migrating)


def with_retries(dsn: str, work: Callable[[Transaction], T]) -> T:
    """Return the result of `work`, which is rolled back and called again for a table in use."""
    try:
        for attempt in Retrying(
            retry=retry_if_exception(_is_table_in_use),
            stop=stop_after_attempt(LOCK_TRIES),
            wait=wait_random_exponential(multiplier=0.5, max=LOCK_PAUSE_SECONDS),
            reraise=True,
        ):
            with attempt, _migrating(dsn) as transaction:
                done = work(transaction)
    except (psycopg.Error, DBAPIError) as error:
        raise CommandError(_explain(error, dsn), code="database_error") from error
    except AlembicError as error:
        raise CommandError(
            f"the database was not upgraded: {one_line(error, dsn)}. No table was changed.",
            code="migration_failed",
        ) from error
    return done


@contextmanager
def _migrating(dsn: str) -> Iterator[Transaction]:
    with connection(dsn) as raw:
        _refuse_old_server(raw)
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: raw,
            poolclass=NullPool,
            use_native_hstore=False,
        )
        with raw.transaction():
            _take_turn(raw)
            roles.prepare(raw)
        with engine.begin() as migrating:
            _take_turn(raw)
            raw.execute(f"SET LOCAL ROLE {OWNER}".encode())
            config = _config(migrating=migrating)
            with _alembic:
                yield Transaction(raw, migrating, config, ScriptDirectory.from_config(config))


def _take_turn(raw: psycopg.Connection) -> None:
    raw.execute(f"SET LOCAL lock_timeout = {TURN_TIMEOUT_MS}".encode())
    raw.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}".encode())
    try:
        raw.execute(statement("lock"))
    except psycopg.errors.LockNotAvailable as error:
        raise CommandError(
            "the database was not upgraded: another upgrade did not end within"
            f" {TURN_TIMEOUT_MS // 60_000} minutes. No table was changed; try again after it.",
            code="upgrade_in_progress",
        ) from error
    raw.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}".encode())


def _revision(migrating: Connection) -> str | None:
    context = MigrationContext.configure(migrating, opts={"version_table_schema": SCHEMA})
    return context.get_current_revision()


def _refuse_old_server(raw: psycopg.Connection) -> None:
    version = raw.info.server_version // 10_000
    if version < SERVER_VERSION_MIN:
        raise CommandError(
            f"Holdfast needs Postgres {SERVER_VERSION_MIN} or newer; this server is {version}."
            " Nothing was changed.",
            code="server_too_old",
        )


def _cause(error: BaseException) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def _is_table_in_use(error: BaseException) -> bool:
    in_use = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
    return isinstance(_cause(error), in_use)


def _holders(dsn: str) -> str:
    """Return the sessions that hold the locks, as a part of a sentence; empty without one."""
    with connection(dsn) as raw:
        holders = raw.execute(statement("lock_holders")).fetchall()
    named = [
        f"pid {pid} ({application or 'unnamed'}{'' if age is None else f', for {age} s'})"
        for pid, application, age in holders
    ]
    return f" ({', '.join(named)})" if named else ""


def _explain(error: psycopg.Error | DBAPIError, dsn: str) -> str:
    cause = _cause(error)
    match cause:
        case psycopg.OperationalError() | psycopg.InterfaceError() if answer_lost(cause.sqlstate):
            return (
                f"the connection to the database was lost: {one_line(cause, dsn)}. The schema was"
                " changed as a whole or not at all: `holdfast db doctor` shows its revision. Repeat"
                " the command."
            )
        case psycopg.errors.LockNotAvailable() | psycopg.errors.DeadlockDetected():
            what = (
                f"a session that uses a table{_holders(dsn)} did not release its lock in time. No"
                f" table was changed; {LOCK_TRIES} tries waited {LOCK_TIMEOUT_MS / 1000:g} s each,"
                " and others continued in between. Try again at a quieter time (`holdfast db"
                " doctor` shows idle open transactions)."
            )
        case psycopg.errors.QueryCanceled():
            what = (
                f"a statement ran longer than {STATEMENT_TIMEOUT_MS // 60_000} minutes."
                " No table was changed."
            )
        case psycopg.errors.ReadOnlySqlTransaction():
            what = "the server is read-only or a standby. No table was changed; use the primary."
        case _:
            what = f"{one_line(cause or error, dsn)}. No table was changed."
    return f"the database was not upgraded: {what}"


# The two phases of a change of the schema, and who must not run when it is contracted or undone.
#
# An expand revision leaves a schema on which the version before works. A contract revision does
# not: its `serves_from` is the oldest code that may work on it. A file's name says which one it is.

FIRST = "0032"
"""The first revision whose file is named for its phase."""

UNRECORDED = f"{int(SESSIONS_SINCE) - 1:04}"
"""The newest code that does not record which range it has."""

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One revision."""

    revision: str
    before: str
    """The revision to which its downgrade leads."""
    name: str
    """Its file, without the ending."""
    serves_from: str | None
    """The oldest code on a contracted schema; None: not a contract revision."""

    @property
    def expands(self) -> bool:
        return self.name.startswith(f"{self.revision}_expand_")


@dataclass(frozen=True, slots=True)
class Session:
    """A process that ran within a day; without a range its code is older than revision 0032."""

    kind: str
    name: str
    revision: str | None
    works_from: str | None
    seen_at: datetime

    def __str__(self) -> str:
        built = self.revision or f"{UNRECORDED} or before"
        seen = f"{self.seen_at:%Y-%m-%d %H:%M:%S %Z}"
        return f"{self.kind} {self.name} (built for {built}, last seen {seen})"


def steps_after(directory: ScriptDirectory, revision: str | None) -> list[Step]:
    """Return the revisions above `revision` (None: all), in order."""
    steps = [_step(each) for each in directory.walk_revisions()]
    return [each for each in reversed(steps) if revision is None or each.revision > revision]


def running(raw: psycopg.Connection) -> list[Session]:
    """Return every process that ran within a day; the database has revision 0032 or newer."""
    with raw.cursor(row_factory=class_row(Session)) as cursor:
        return cursor.execute(statement("code_sessions")).fetchall()


def refuse_contract(step: Step, sessions: Sequence[Session]) -> None:
    """Raise `CommandError` if code ran within a day that the contracted schema does not serve."""
    serves_from = step.serves_from or ""
    older = [each for each in sessions if (each.revision or UNRECORDED) < serves_from]
    if older:
        raise CommandError(
            f"revision {step.name} serves only code built for {serves_from} or later, and older"
            f" code ran within a day: {_named(older)}. Nothing was changed, and it continues."
            " Replace these processes, and run this again; `holdfast db upgrade --expand` runs the"
            " revisions before it now. Where they have ended for good, add --force.",
            code="incompatible_code_running",
        )


def refuse_downgrade(
    revision: str, undone: Sequence[Step], sessions: Sequence[Session], *, force: bool
) -> None:
    """Raise `CommandError` unless `undone` are expand revisions, and no process needs them."""
    kept = next((each for each in undone if not each.expands), None)
    if kept is not None:
        raise CommandError(
            f"revision {kept.name} cannot be undone: only revisions named expand can, up to the"
            " newest contract revision. Nothing was changed; restore a backup, or keep the"
            " version that the database serves.",
            code="revision_not_reversible",
        )
    newer = [each for each in sessions if (each.works_from or UNRECORDED) > revision]
    if newer and not force:
        raise CommandError(
            f"code that does not work on revision {revision} ran within a day: {_named(newer)}."
            " Nothing was changed, and it continues. Replace these processes by the older version,"
            " and run this again. Where they have ended for good, add --force.",
            code="incompatible_code_running",
        )


def _step(script: Any) -> Step:
    return Step(
        script.revision,
        script.down_revision or "base",
        script.path.rpartition("/")[2].removesuffix(".py"),
        getattr(script.module, "serves_from", None),
    )


def _named(sessions: Sequence[Session]) -> str:
    more = len(sessions) - NAMED_MAX
    shown = ", ".join(map(str, sessions[:NAMED_MAX]))
    return f"{shown} and {more} more" if more > 0 else shown
