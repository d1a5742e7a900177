"""A connection in the operator's role, and what every operator's command does on it.

A change and its audit row commit together.
"""

import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from dispatcher.operators.common.person import person_of
from dispatcher.operators.common.statements import statement
from sink.contract import roles
from sink.contract.dsn import redact
from sink.contract.exits import CommandError, ExitCode
from sink.contract.schema import SCHEMA_REVISION

Row = dict[str, Any]

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30

STREAMS_NAMED_MAX = 10
"""As many are named to somebody who named another."""

_ACTOR: ContextVar[tuple[str, str] | None] = ContextVar("actor", default=None)
"""The name in the audit trail, and the person."""


class OperatorSession:
    """Statements on an open connection, each by the name of its file."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def connect(cls, dsn: str | None) -> Iterator[Self]:
        """Connect in the operator's role; raises `CommandError` when that is not possible."""
        with operator_connection(dsn) as connection:
            store = cls(connection)
            cls._begin(store)
            yield store

    def _begin(self) -> None:
        """Set what the session of one command needs; a connection of a pool is left as it is."""

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            yield

    def _audit(self, action: str, target: str, reason: str, detail: Row) -> None:
        self._run(
            "common/audit_add",
            {
                "actor": actor(),
                "action": action,
                "target": target,
                "reason": reason,
                "detail": Jsonb({k: _noted(v) for k, v in detail.items() if v is not None}),
            },
        )

    def try_audit(self) -> None:
        """Raise what keeps the audit trail from being written; nothing is left of the try.

        To be called before something acts in a transaction of its own, whose audit row comes after.
        """
        with self._transaction():
            self._audit("try", "the audit trail", "taken back", {})
            raise psycopg.Rollback

    def _known_stream(self, name: str) -> None:
        """Raise `CommandError` (nothing matched) where no stream has this name."""
        known = [row["name"] for row in self._all("common/stream_names")]
        if name in known:
            return
        if not known:
            streams = "there is none yet: a stream appears when a sink writes to it first"
        elif len(known) <= STREAMS_NAMED_MAX:
            streams = f"there are {', '.join(known)}"
        else:
            streams = f"there are {len(known)} others"
        raise CommandError(
            f"no stream is called {name!r}; {streams} (`holdfast stream list`). Nothing was"
            " changed.",
            ExitCode.NOTHING_MATCHED,
        )

    def _subject_id(self, name: str) -> int:
        """Return the number of a subject; raises `CommandError` (nothing matched) without one."""
        found = self._maybe("common/entry_subject", {"subject": name})
        if found is None:
            raise CommandError(
                f"no subject is called {name!r}. Nothing was changed; names are compared exactly"
                " (`holdfast subjects list --prefix`).",
                ExitCode.NOTHING_MATCHED,
            )
        number: int = found["id"]
        return number

    def _reasons(self, targets: Sequence[str], actions: Sequence[str]) -> dict[str, str]:
        """Return the newest reason with which operators did one of `actions` to each target."""
        given = {"targets": list(targets), "actions": list(actions)}
        rows = self._all("common/action_reasons", given) if targets else []
        return {row["target"]: row["reason"] for row in rows}

    def _run(self, name: str, parameters: Row | None = None) -> psycopg.Cursor[Row]:
        return self._connection.execute(statement(name), parameters)

    def _all(self, name: str, parameters: Row | None = None) -> list[Row]:
        return self._run(name, parameters).fetchall()

    def _maybe(self, name: str, parameters: Row | None = None) -> Row | None:
        return self._run(name, parameters).fetchone()

    def _one(self, name: str, parameters: Row | None = None) -> Row:
        row = self._maybe(name, parameters)
        if row is None:
            raise CommandError(f"the statement {name} returned nothing; nothing was changed.")
        return row


@contextmanager
def operator_connection(dsn: str | None) -> Iterator[psycopg.Connection[Row]]:
    """Connect in the operator's role; raises `CommandError` when that is not possible.

    What the database refuses inside the block is a `CommandError` too.
    """
    # Only closed: what a block changes it commits itself, and a block that was interrupted may have
    # left a statement under way, behind which nothing can be sent.
    with closing(_connect(_required(dsn))) as connection, refusals():
        yield connection


@contextmanager
def refusals() -> Iterator[None]:
    """Make a `CommandError` of what the database refuses inside the block."""
    try:
        yield
    except psycopg.Error as error:
        raise CommandError(
            f"the database refused: {cause(error)}. This command changed nothing; try again, and"
            " see `holdfast db doctor`."
        ) from None


def cause(error: Exception) -> str:
    """Return what a database's error says, in one line and without a password.

    libpq repeats itself once per address; the first line holds the cause.
    """
    lines = redact(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def acting_as(name: str, person: str | None = None) -> Iterator[None]:
    """Name whoever acts in this block otherwise than by the login of this process.

    `person` is who that is, where the name alone does not say it.
    """
    token = _ACTOR.set((name, person or person_of(name)))
    try:
        yield
    finally:
        _ACTOR.reset(token)


def actor() -> str:
    """Who acts, for the audit trail: the login name, or the number of a user without one.

    The operating system says whose process this is; the environment, which anybody sets, does not.
    Inside of `acting_as` it is the name that was given there.
    """
    if (named := _ACTOR.get()) is not None:
        return named[0]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def person() -> str:
    """Who acts, whatever token or login they act by: the same text for the same person."""
    named = _ACTOR.get()
    return person_of(actor()) if named is None else named[1]


def _noted(value: Any) -> Any:
    """Return lists and mappings as JSON, and all else as text."""
    match value:
        case dict():
            return {key: each if each is None else _noted(each) for key, each in value.items()}
        case list():
            return [_noted(each) for each in value]
        case _:
            return str(value)


def _required(dsn: str | None) -> str:
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
        )
    return dsn


def _connect(dsn: str) -> psycopg.Connection[Row]:
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq quotes what it could not read, which may be a piece of the password.
        raise CommandError(
            "the DSN cannot be read: expected postgresql://user@host/database or"
            " 'host=... dbname=...'. Nothing was changed; check --dsn or HOLDFAST_DSN.",
            ExitCode.USAGE,
        ) from None
    try:
        connection = psycopg.connect(
            dsn,
            connect_timeout=CONNECT_SECONDS,
            row_factory=dict_row,
            autocommit=True,
            application_name="holdfast-operator",
        )
    except psycopg.Error as error:
        raise CommandError(
            f"the database cannot be used: {cause(error)}. Nothing was changed; check --dsn or"
            " HOLDFAST_DSN, or start one with `holdfast local up`."
        ) from None
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: psycopg.Connection[Row]) -> None:
    """Make a connection the operator's; raises `CommandError` where the schema is another."""
    # First: a function or an operator of another schema in front of the server's is never called.
    connection.execute(f"SET search_path = {roles.SEARCH_PATH}".encode())
    row = connection.execute(statement("schema_installed")).fetchone()
    if row is None or not row["installed"]:
        raise CommandError("this database has no Holdfast schema: run `holdfast db upgrade` first.")
    try:
        connection.execute(f"SET ROLE {roles.OPERATOR}")
        connection.execute("SET datestyle = 'ISO'")
    except psycopg.errors.InsufficientPrivilege:
        raise CommandError(
            f"the database user of this DSN may not act as {roles.OPERATOR}; nothing was changed."
            f" Grant it: GRANT {roles.OPERATOR} TO <user>."
        ) from None
    connection.execute(
        "SELECT set_config('statement_timeout', %s, false)", (f"{STATEMENT_SECONDS}s",)
    )
    # A filter that was not given is NULL: one plan for them all would read everything.
    connection.execute("SET plan_cache_mode = force_custom_plan")
    row = connection.execute(statement("schema_revision")).fetchone()
    revision = row["revision"] if row else "none"
    if revision != SCHEMA_REVISION:
        raise CommandError(
            f"the database has schema revision {revision}, this version needs {SCHEMA_REVISION}."
            " Nothing was changed: run `holdfast db upgrade`, or use the version of Holdfast that"
            " the database was upgraded for."
        )
