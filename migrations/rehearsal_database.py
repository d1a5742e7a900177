"""An empty database of the same server, in which an upgrade is rehearsed; no other is touched."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.migrations.connect import connection, one_line, statement
from holdfast.migrations.roles import reachable
from holdfast.migrations.upgrade import Transaction, in_turn
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.roles import ALL

T = TypeVar("T")

_DROP = sql.SQL("DROP DATABASE IF EXISTS {}")


@dataclass(frozen=True, slots=True)
class RehearsalDatabase:
    """The database, by its DSN and its name."""

    dsn: str
    name: str

    def in_turn(self, work: Callable[[Transaction], T]) -> T:
        """As `holdfast.migrations.upgrade.in_turn`, in this database and in no other one."""

        def here(transaction: Transaction) -> T:
            self.require(transaction.raw)
            return work(transaction)

        return in_turn(self.dsn, here)

    def require(self, raw: psycopg.Connection) -> None:
        """Raise `CommandError` on a connection to another database, as a pooler may give one."""
        (found,) = raw.execute("SELECT current_database()::text").fetchone() or ("",)
        if found != self.name:
            raise CommandError(
                f"the upgrade is rehearsed in an empty database, and this address leads to"
                f" {found} whatever database is asked for, as a pooler does. No table was changed;"
                " let --dsn name the server itself."
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
                " `holdfast db upgrade --sql`."
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                "the upgrade is rehearsed in an empty database of this server, and none could be"
                f" created: {one_line(error, dsn)}. No table was changed."
            ) from error
        made = RehearsalDatabase(make_conninfo(dsn, dbname=named), named)
        try:
            with connection(made.dsn) as there:
                made.require(there)
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
            f' (`CREATE ROLE ... NOLOGIN`) and to run `GRANT ... TO "{raw.info.user}"`.'
        )
