"""Upgrades a database to the newest revision, completely or not at all.

It uses one connection and two transactions: the first creates roles and schema
(`migrations.roles`), the second runs all missing revisions as `holdfast_owner`, which owns every
object. An advisory lock serializes upgrades of a database. An upgrade waits only briefly for a
table lock of a service, because all other sessions queue behind a waiting ALTER TABLE.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError as AlembicError
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from migrations import roles
from migrations.connect import connection, one_line, statement
from sink.contract.exits import CommandError
from sink.contract.roles import ALL, OWNER, SEARCH_PATH
from sink.contract.schema import READ
from sink.contract.tables import SCHEMA

SERVER_VERSION_MIN = 15
"""The oldest supported major version of Postgres; tested with 15, 16 and 18."""

TURN_TIMEOUT_MS = 300_000
"""How long an upgrade waits for another upgrade of the same database."""

LOCK_TIMEOUT_MS = 5_000
"""How long a revision waits for a table lock."""

STATEMENT_TIMEOUT_MS = 600_000

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


def upgrade(dsn: str) -> Upgraded:
    """Upgrade the database of `dsn` to the newest revision; safe to repeat.

    Raises `CommandError` if it cannot; then no table was changed.
    """
    with _migrating(dsn) as (migrating, config):
        before = _revision(migrating)
        refuse_unknown(before)
        command.upgrade(config, "head")
        migrating.exec_driver_sql(statement("ensure_partitions").decode())
        return Upgraded(before, _revision(migrating))


def downgrade(dsn: str, revision: str) -> Upgraded:
    """Downgrade the database to `revision`; "base" drops all tables with their rows.

    Raises `CommandError` if it cannot; then no table was changed.
    """
    with _migrating(dsn) as (migrating, config):
        before = _revision(migrating)
        refuse_unknown(before)
        command.downgrade(config, revision)
        return Upgraded(before, _revision(migrating))


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
            " schema revision. Nothing was changed; see docs/operators/database.md for the roles."
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
    known = {found.revision for found in script_directory.walk_revisions()}
    if revision is not None and revision not in known:
        raise CommandError(
            f"the database has schema revision {revision}, which this version of Holdfast does not"
            f" know (its newest is {head()}). Nothing was changed. Use the Holdfast version that"
            " upgraded the database."
        )


def _config(output: io.StringIO | None = None, migrating: Connection | None = None) -> Config:
    config = Config(output_buffer=output, attributes={"connection": migrating})
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    return config


@contextmanager
def _migrating(dsn: str) -> Iterator[tuple[Connection, Config]]:
    with connection(dsn) as raw:
        _refuse_old_server(raw)
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: raw,
            poolclass=NullPool,
            use_native_hstore=False,
        )
        try:
            with raw.transaction():
                _take_turn(raw)
                roles.prepare(raw)
            with engine.begin() as migrating:
                _take_turn(raw)
                raw.execute(f"SET LOCAL ROLE {OWNER}".encode())
                with _alembic:
                    yield migrating, _config(migrating=migrating)
        except (psycopg.Error, DBAPIError) as error:
            raise CommandError(_explain(error, dsn)) from error
        except AlembicError as error:
            raise CommandError(
                f"the database was not upgraded: {one_line(error, dsn)}. No table was changed."
            ) from error


def _take_turn(raw: psycopg.Connection) -> None:
    raw.execute(f"SET LOCAL lock_timeout = {TURN_TIMEOUT_MS}".encode())
    raw.execute(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}".encode())
    raw.execute(statement("lock"))
    raw.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}".encode())


def _revision(migrating: Connection) -> str | None:
    context = MigrationContext.configure(migrating, opts={"version_table_schema": SCHEMA})
    return context.get_current_revision()


def _refuse_old_server(raw: psycopg.Connection) -> None:
    version = raw.info.server_version // 10_000
    if version < SERVER_VERSION_MIN:
        raise CommandError(
            f"Holdfast needs Postgres {SERVER_VERSION_MIN} or newer; this server is {version}."
            " Nothing was changed."
        )


def _explain(error: psycopg.Error | DBAPIError, dsn: str) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    match cause:
        case psycopg.errors.LockNotAvailable():
            what = (
                "another upgrade, or a session that uses a table, did not release its lock in time."
                " No table was changed; try again at a quieter time (`holdfast db doctor` shows"
                " idle open transactions)."
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
