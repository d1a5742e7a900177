"""Bring a database to the newest revision, all of it or nothing.

One connection, two transactions: the first makes roles and schema (`migrations.roles`), the second
runs every missing revision as `holdfast_owner`, which so comes to own every object. An advisory
lock lets one upgrade of a database run at a time. A lock that a service holds on a table is waited
for briefly only, because everybody else queues behind a waiting ALTER TABLE.
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
from sink.contract.tables import SCHEMA

SERVER_VERSION_MIN = 15
"""The oldest major version of Postgres that is supported; tested with 15, 16 and 18."""

TURN_TIMEOUT_MS = 300_000
"""How long an upgrade waits for another one of the same database."""

LOCK_TIMEOUT_MS = 5_000
"""How long a revision waits for a table that somebody uses."""

STATEMENT_TIMEOUT_MS = 600_000

# `op` and `context` of alembic are globals: two threads would run each other's revisions.
_alembic = Lock()


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What an upgrade did; a revision is None where the database has none."""

    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def upgrade(dsn: str) -> Upgraded:
    """Migrate the database of `dsn` to the newest revision; does nothing where it has it already.

    Raises `CommandError`, in one line, when it cannot; then no table was changed.
    """
    with _migrating(dsn) as (migrating, config):
        before = _revision(migrating)
        refuse_unknown(before)
        command.upgrade(config, "head")
        migrating.exec_driver_sql(statement("ensure_partitions").decode())
        return Upgraded(before, _revision(migrating))


def downgrade(dsn: str, revision: str) -> Upgraded:
    """Take the database back to `revision`; after "base" no table is left, and no row.

    Raises `CommandError`, in one line, when it cannot; then no table was changed.
    """
    with _migrating(dsn) as (migrating, config):
        before = _revision(migrating)
        refuse_unknown(before)
        command.downgrade(config, revision)
        return Upgraded(before, _revision(migrating))


def script(dsn: str | None) -> str:
    """Return the SQL that `upgrade` would run, for an administrator to read, or to run with psql.

    It starts from the revision of `dsn`'s database, or from an empty one where `dsn` is None.
    """
    start = None
    if dsn:
        with connection(dsn) as raw:
            start = current(raw)
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


def current(raw: psycopg.Connection) -> str | None:
    """Return the revision that the database has, None without one.

    Raises `CommandError` when the user may take on none of the roles that can read it.
    """
    row = raw.execute(statement("installed")).fetchone()
    if not row or not row[0]:
        return None
    mine = roles.reachable(raw)
    role = next((role for role in ALL if mine.get(role)), None)
    if role is None:
        raise CommandError(
            f"the user {raw.info.user} may take on none of Holdfast's roles, so it cannot read the"
            " schema revision. Nothing was changed; docs/operators/database.md says who needs which"
            " role."
        )
    with raw.transaction():
        raw.execute(f"SET LOCAL ROLE {role}".encode())
        found = raw.execute(statement("revision")).fetchone()
    return str(found[0]) if found else None


def head() -> str:
    """Return the newest revision of this version of Holdfast."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def refuse_unknown(revision: str | None) -> None:
    """Raise `CommandError` for a revision of a newer version of Holdfast than this one."""
    script_directory = ScriptDirectory.from_config(_config())
    known = {found.revision for found in script_directory.walk_revisions()}
    if revision is not None and revision not in known:
        raise CommandError(
            f"the database has schema revision {revision}, which this version of Holdfast does not"
            f" know (its newest is {head()}). Nothing was changed: use the version of Holdfast that"
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
                "another upgrade, or a session that uses one of the tables, did not let go in time."
                " No table was changed; try again at a quieter moment (`holdfast db doctor` shows"
                " transactions that somebody left open)."
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
