"""A connection in the operator's role, and what the stores of all verbs do on it.

A change and its audit row commit together.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from holdfast.dispatcher.operators.common.person import person_of
from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.shared.errors import UnservedCommandError
from holdfast.sink.contract import roles, schema
from holdfast.sink.contract.dsn import answer_lost, redact
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.login import login_name

Row = dict[str, Any]

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30

EXPORT_ROWS = 200
"""Rows that an export holds in memory: a row is at most 64 KiB, a body at most 256 KiB."""

STREAMS_NAMED_MAX = 10
"""Maximum number of streams that the error about an unknown one names."""

_ID = re.compile(r"[0-9a-f]{8,32}")

_ACTOR: ContextVar[tuple[str, str] | None] = ContextVar("actor", default=None)
"""The name in the audit trail, and the person."""


Store = TypeVar("Store", bound="OperatorSession")


class OperatorSession:
    """Runs statements on an open connection, each by the name of its file."""

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

    def beside(self, other: type[Store]) -> Store:
        """Return a store of another verb on the same connection."""
        return other(self._connection)

    def moment(self, when: When | None) -> datetime | None:
        """Return the moment that a person wrote, by the database's clock; None for none."""
        if when is None:
            return None
        if when.fixed is not None:
            return when.fixed
        now: datetime = self._one("common/now")["now"]
        return when.at(now)

    def _transaction(self) -> AbstractContextManager[psycopg.Transaction]:
        return self._connection.transaction()

    @contextmanager
    def _export(
        self, count: str, rows: str, parameters: Row
    ) -> Iterator[tuple[int, Iterator[Row]]]:
        """Yield the count of rows by one statement, and the rows by another, in one snapshot."""
        with self._transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            total = self._one(count, parameters)["count"]
            with self._connection.cursor("holdfast_export") as cursor:
                cursor.itersize = EXPORT_ROWS
                cursor.execute(statement(rows), parameters)
                yield total, iter(cursor)

    def _audit(
        self, action: str, target: str, reason: str, detail: Row, *, changes: bool = True
    ) -> None:
        """Record an action; what `changes` something makes the dispatchers look at once."""
        if changes:
            self._run("doorbell_changed")
        self._run(
            "common/audit_add",
            {
                "actor": actor(),
                "action": action,
                "target": target,
                "reason": reason,
                "detail": Jsonb({k: _as_json(v) for k, v in detail.items() if v is not None}),
            },
        )

    def try_audit(self) -> None:
        """Raise the error that writing the audit trail would raise now; write nothing.

        For a change in another transaction, whose audit row is written after it.
        """
        with self._transaction():
            self._audit("try", "the audit trail", "rolled back", {})
            raise psycopg.Rollback

    def _known_stream(self, name: str) -> None:
        """Raise `CommandError` (nothing matched) for an unknown stream."""
        known = [row["name"] for row in self._all("common/stream_names")]
        if name in known:
            return
        if not known:
            streams = "there is none yet: the first write of a sink creates one"
        elif len(known) <= STREAMS_NAMED_MAX:
            streams = f"there are {', '.join(known)}"
        else:
            streams = f"there are {len(known)} others"
        raise CommandError(
            f"no stream is called {name!r}; {streams} (`holdfast stream list`). Nothing was"
            " changed.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_stream",
        )

    def _take_stream(self, name: str) -> Row:
        """Lock a stream, which keeps its name until COMMIT; return it as `streams/take` does.

        Raises what `_known_stream` raises.
        """
        while (row := self._maybe("streams/take", {"stream": name})) is None:
            self._known_stream(name)
        return row

    def _subject_id(self, name: str) -> int:
        """Return the number of a subject; raises `CommandError` (nothing matched) without one."""
        row = self._maybe("common/entry_subject", {"subject": name})
        if row is None:
            raise CommandError(
                f"no subject is called {name!r}. Nothing was changed; names are compared exactly"
                " (`holdfast subject list --prefix`).",
                ExitCode.NOTHING_MATCHED,
                code="unknown_subject",
            )
        number: int = row["id"]
        return number

    def _newest_decision(self, subject: str, stream: str | None, type_: str) -> Row | None:
        """Return a subject's newest decision for an entry of this type that belongs to `stream`.

        Columns as in `common/newest_decision`; None for an unknown subject.
        """
        parameters = {"subject": subject, "stream": stream, "type": type_}
        return self._maybe("common/newest_decision", parameters)

    def _last_sequence(self, subject: str, stream: str | None, type_: str) -> int:
        """Return a subject's last sequence: 0 for an unknown one. Read it before its decisions."""
        newest = self._newest_decision(subject, stream, type_)
        return 0 if newest is None else int(newest["last_sequence"])

    def _heartbeats(self) -> Row:
        """Return since when heartbeats are of living dispatchers (`alive_since`), and `read_only`.

        Where no heartbeat can be written, the dispatchers that are connected live on.
        """
        return self._one("common/heartbeats")

    def _unaware(self, revision: str) -> str:
        """Name the living dispatchers of code from before a revision; empty if there is none."""
        rows = self._all("common/unaware", {"revision": revision})
        return ", ".join(row["name"] for row in rows)

    def _reasons(self, targets: Sequence[str], actions: Sequence[str]) -> dict[str, str]:
        """Return the newest reason that operators gave for one of `actions` on each target."""
        parameters = {"targets": list(targets), "actions": list(actions)}
        rows = self._all("common/action_reasons", parameters) if targets else []
        return {row["target"]: row["reason"] for row in rows}

    def _find_id(self, text: str, noun: str, name: str) -> UUID:
        """Return the id that `text` gives in full or by at least its first 8 hex digits.

        Raises `CommandError`: usage for another text or an ambiguous one; nothing matched.
        """
        digits = text.lower().replace("-", "")
        if not _ID.fullmatch(digits):
            raise CommandError(
                f"{text!r} is not the id of a {noun}: it has 32 hex digits, of which 8 are enough."
                f" Nothing was changed; see `holdfast {noun} list`.",
                ExitCode.USAGE,
                code="invalid_id",
            )
        ids: list[UUID] = [row["id"] for row in self._all(name, {"digits": digits})]
        if not ids:
            raise unknown_id(noun, text)
        if len(ids) > 1:
            raise CommandError(
                f"several {noun}s begin with {text}. Nothing was changed; give more digits, see"
                f" `holdfast {noun} list`.",
                ExitCode.USAGE,
                code="ambiguous_id",
            )
        return ids[0]

    def _run(self, name: str, parameters: Row | None = None) -> psycopg.Cursor[Row]:
        return self._connection.execute(statement(name), parameters)

    def _all(self, name: str, parameters: Row | None = None) -> list[Row]:
        return self._run(name, parameters).fetchall()

    def _maybe(self, name: str, parameters: Row | None = None) -> Row | None:
        return self._run(name, parameters).fetchone()

    def _one(self, name: str, parameters: Row | None = None) -> Row:
        row = self._maybe(name, parameters)
        if row is None:
            raise CommandError(
                f"the statement {name} returned nothing; nothing was changed.",
                code="internal_error",
            )
        return row


def unknown_id(noun: str, text: str) -> CommandError:
    """Return the error for the id of a proposal or a replay that does not exist."""
    return CommandError(
        f"there is no {noun} {text}. Nothing was changed; see `holdfast {noun} list`.",
        ExitCode.NOTHING_MATCHED,
        code="unknown_id",
    )


@contextmanager
def operator_connection(dsn: str | None) -> Iterator[psycopg.Connection[Row]]:
    """Connect in the operator's role; raises `CommandError` when that is not possible.

    Inside the block, errors of the database become a `CommandError` too.
    """
    # Only close: the block commits its own changes. An interrupted block may leave a statement
    # running, and no other can be sent then.
    with closing(_connect(_required(dsn))) as connection, refusals():
        yield connection


_OLDER_SCHEMA = (
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedTable,
)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors of the database inside the block into a `CommandError`."""
    try:
        yield
    except psycopg.Error as error:
        if is_answer_lost(error):
            raise CommandError(
                f"the connection to the database was lost: {cause(error)}. Whether the last change"
                " was made is not known: look before you repeat the command.",
                code="connection_lost",
            ) from None
        if isinstance(error, _OLDER_SCHEMA):
            raise CommandError(
                f"the database's schema is older than this needs: {cause(error)}. Nothing was"
                " changed; run `holdfast db upgrade`, then repeat this.",
                code="database_outdated",
            ) from None
        raise CommandError(
            f"the database refused: {cause(error)}. This command changed nothing; try again, and"
            " see `holdfast db doctor`.",
            code="database_error",
        ) from None


def is_answer_lost(error: psycopg.Error) -> bool:
    """Return whether the connection ended before the server's answer, as to a COMMIT."""
    away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return away and answer_lost(error.sqlstate)


def cause(error: Exception) -> str:
    """Return the cause of a database's error in one line, without a password.

    libpq writes a line for each address; the first one holds the cause.
    """
    lines = redact(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def acting_as(name: str, person: str | None = None) -> Iterator[None]:
    """Set the actor of this block, in place of the login name of this process.

    `person` is the person behind the name if that differs.
    """
    token = _ACTOR.set((name, person or person_of(name)))
    try:
        yield
    finally:
        _ACTOR.reset(token)


def actor() -> str:
    """Return the actor for the audit trail: the login name, or the name given to `acting_as`."""
    return login_name() if (named := _ACTOR.get()) is None else named[0]


def person() -> str:
    """Return who acts: the same text for the same person, whatever token or login they use."""
    named = _ACTOR.get()
    return person_of(actor()) if named is None else named[1]


def _as_json(value: Any) -> Any:
    """Return lists and mappings as JSON, and everything else as text."""
    match value:
        case dict():
            return {key: each if each is None else _as_json(each) for key, each in value.items()}
        case list():
            return [_as_json(each) for each in value]
        case _:
            return str(value)


def _required(dsn: str | None) -> str:
    if not dsn:
        raise CommandError(
            "no database: pass --dsn, set HOLDFAST_DSN, or start one with `holdfast local up`.",
            ExitCode.USAGE,
            code="missing_dsn",
        )
    return dsn


def _connect(dsn: str) -> psycopg.Connection[Row]:
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq quotes the part that it cannot read, which may belong to the password.
        raise CommandError(
            "the DSN cannot be read: expected postgresql://user@host/database or"
            " 'host=... dbname=...'. Nothing was changed; check --dsn or HOLDFAST_DSN.",
            ExitCode.USAGE,
            code="invalid_dsn",
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
            " HOLDFAST_DSN, or start one with `holdfast local up`.",
            code="database_unavailable",
        ) from None
    try:
        prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: psycopg.Connection[Row], server: str | None = None) -> None:
    """Set a connection up for the operator's role; raises `CommandError` for another schema.

    `server` is the name under which an API server is recorded as running; a command is not.
    """
    # First, so that no function or operator of another schema shadows the server's own.
    connection.execute(f"SET search_path = {roles.SEARCH_PATH}".encode())
    row = connection.execute(statement("schema_installed")).fetchone()
    if row is None or not row["installed"]:
        raise CommandError(
            "this database has no Holdfast schema: run `holdfast db upgrade` first.",
            code="schema_missing",
        )
    try:
        connection.execute(f"SET ROLE {roles.OPERATOR}")
        connection.execute("SET datestyle = 'ISO'")
    except psycopg.errors.InsufficientPrivilege:
        raise CommandError(
            f"the database user of this DSN may not act as {roles.OPERATOR}; nothing was changed."
            f" Grant it: GRANT {roles.OPERATOR} TO <user>.",
            code="database_role_missing",
        ) from None
    connection.execute(
        "SELECT set_config('statement_timeout', %s, false)", (f"{STATEMENT_SECONDS}s",)
    )
    # A filter that is not given is NULL, so one generic plan for all would scan whole tables.
    connection.execute("SET plan_cache_mode = force_custom_plan")
    stored = read_range(connection)
    misfit = schema.misfit(stored["revision"], stored["serves_from"])
    if misfit is not None and stored["read_only"]:
        # A standby may be behind the upgrade that its primary has.
        raise CommandError(
            f"the server is read-only or a standby, and {misfit}", code="schema_mismatch"
        )
    if misfit is not None:
        raise UnservedCommandError(misfit)
    if server is not None and schema.records(stored["revision"]) and not stored["read_only"]:
        connection.execute(schema.RECORD, schema.session("api", server))


def read_range(connection: psycopg.Connection[Row]) -> Row:
    """Return `revision` and `serves_from` of the schema, each None without one, and `read_only`."""
    nothing: Row = {"revision": None, "serves_from": None, "read_only": True}
    return connection.execute(schema.READ).fetchone() or nothing
