"""The sink's connections and transactions: bounded in time, in its role, on a checked server.

No session state lives longer than a transaction, so each transaction may get another session of a
pooler in transaction mode.

An error of this module never claims that nothing was written: the session before may have sent a
COMMIT. The caller knows, and adds it (`retry.completed`).
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from threading import Timer
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from holdfast.sink.contract import schema, statements
from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.roles import SINK, application_of
from holdfast.sink.errors import AccessDenied, NotPrimary, SchemaMismatch
from holdfast.sink.transaction.login import Login
from holdfast.sink.transaction.refusal import is_denied, mistake, unusable

SECONDS_MAX = 2_147_483
"""Postgres stores a timeout as milliseconds in 31 bits."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The sink's timeouts in seconds, from 0 to 2,147,483, the maximum of Postgres.

    0 means no limit, except for `connect_seconds` (psycopg's own) and `deadline_seconds` (no second
    attempt). Raises `ValueError` for anything else.

    >>> sink = OutboxSink(dsn, stream="payouts", timeouts=Timeouts(deadline_seconds=60))
    """

    connect_seconds: int = 10
    lock_seconds: float = 20
    statement_seconds: float = 60
    idle_seconds: float = 60
    """After which the server ends a transaction whose driver is idle, and frees its locks."""

    transaction_seconds: float = 120
    """After which the sink closes the connection to a server that does not answer."""

    deadline_seconds: float = 300
    """After which the sink stops retrying and raises `SinkUnavailable`."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            seconds = getattr(self, name)
            kinds = (int,) if name == "connect_seconds" else (int, float)
            # A comparison with NaN is false.
            if type(seconds) not in kinds or not 0 <= seconds <= SECONDS_MAX:
                number = "a whole number" if len(kinds) == 1 else "a number"
                raise ValueError(
                    f"{name} is {seconds!r}: expected {number} of seconds from 0 to {SECONDS_MAX:,}"
                )


_MISFITS = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
    psycopg.errors.UndefinedTable,
)


_REFUSED = "the sink does not write to this database"


def statement(name: str) -> bytes:
    """Return a statement of this package."""
    return statements.statement("holdfast.sink.transaction", name)


def execute(connection: psycopg.Connection, name: str, **values: Any) -> psycopg.Cursor[DictRow]:
    """Execute a statement of `sql/`; raises `SchemaMismatch` where the database lacks something."""
    with fitting():
        return connection.cursor(row_factory=dict_row).execute(statement(name), values)


def one_row(connection: psycopg.Connection, name: str, **values: Any) -> DictRow:
    """Execute a statement that always returns a row, and return it."""
    row = execute(connection, name, **values).fetchone()
    if row is None:
        raise LookupError(f"{name} returned no row")
    return row


@contextmanager
def fitting() -> Iterator[None]:
    """Turn an error about a missing object or privilege into `SchemaMismatch`."""
    try:
        yield
    except _MISFITS as error:
        raise SchemaMismatch(
            f"the database does not fit this version: {error_text(error)}.",
            "Restore what was revoked, and restart; this checks server, schema and roles:"
            " `holdfast db doctor`."
            if isinstance(error, psycopg.errors.InsufficientPrivilege)
            else "Restore by hand what was dropped (`holdfast db doctor`). Upgrade an older schema,"
            " and restart: `holdfast db upgrade`.",
        ) from error


def error_text(error: BaseException) -> str:
    """Return the text of an error on one line, without a password."""
    return redact(" ".join(str(error).split())).rstrip(".")


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection with the role of its transactions: the stream's own, where there is one."""

    role = SINK


def open_session(login: Login, stream: str, timeouts: Timeouts) -> Session:
    """Connect and check server and schema; statements run in `transaction(connection, timeouts)`.

    Raises `psycopg.OperationalError` when no server answers, `AccessDenied` when it refuses,
    `SchemaMismatch` when it does not fit, and `NotPrimary` when it may fit later.
    """
    dsn = login.conninfo()
    try:
        connection = _connect(dsn, stream, timeouts)
    except psycopg.OperationalError as error:
        if (setting := unusable(error)) is not None:
            raise AccessDenied(
                f"stream {stream!r}: a setting of the connection cannot be used: {setting}. Correct"
                " the DSN, its service file or the variables of libpq, and restart."
            ) from None
        if is_denied(error, dsn, timeouts.connect_seconds):
            raise AccessDenied(
                f"stream {stream!r}: the server refused the connection: {error_text(error)}."
                " Correct user, password or database of the DSN, and restart."
            ) from None
        if login.has_worked or (advice := mistake(error, dsn)) is None:
            raise
        raise AccessDenied(
            f"stream {stream!r}: there is no connection: {error_text(error)}; {advice}, and"
            " restart."
        ) from None
    except UnicodeError:
        # Of `getaddrinfo`: a label of the name is empty or longer than 63 characters.
        raise AccessDenied(
            f"stream {stream!r}: the host of the DSN cannot be a name: correct it, and restart."
        ) from None
    login.has_worked = True
    try:
        with cut_after(connection, timeouts.transaction_seconds):
            # Each statement must see what others committed while it waited for their locks.
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            with connection.transaction():
                server = one_row(connection, "connection/server", stream=stream)
                _refuse_unfit(server)
                connection.role = server["writer"]
                _take_role(connection, timeouts)
                _refuse_misfit(connection, stream)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(dsn: str, stream: str, timeouts: Timeouts) -> Session:
    return Session.connect(
        dsn,
        autocommit=True,
        connect_timeout=timeouts.connect_seconds,
        application_name=application_of(stream),
        client_encoding="UTF8",
        # A plan cached for a small batch would be bad for the next large one, and a pooler would
        # not have it.
        prepare_threshold=None,
        keepalives=1,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )


@contextmanager
def transaction(
    connection: psycopg.Connection, timeouts: Timeouts, *, read_only: bool = False
) -> Iterator[date]:
    """Run a block in one transaction, with the sink's role and timeouts, which end with it.

    Yields the date of the database's clock, in UTC. A read-only transaction has one snapshot.
    Raises `NotPrimary`, and `SchemaMismatch` where the user may not act as the sink.
    """
    with connection.transaction():
        if read_only:
            execute(connection, "connection/read_only")
        session = _take_role(connection, timeouts)
        if session["read_only"]:
            raise _not_primary()
        today: date = session["today"]
        yield today


@contextmanager
def cut_after(connection: psycopg.Connection, seconds: float) -> Iterator[None]:
    """Shut down the connection's socket when the block takes longer than `seconds`.

    The server's own timeouts end its statements; this ends the wait for a server or a network that
    no longer answers. 0 means no limit.
    """
    if not seconds:
        yield
        return
    # A duplicate: libpq may close its descriptor, and the number would then be another file.
    line = socket.socket(fileno=os.dup(connection.fileno()))
    timer = Timer(seconds, _cut, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        line.close()


def _cut(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _refuse_unfit(server: DictRow) -> None:
    if server["read_only"]:
        raise _not_primary()
    if not server["durable"]:
        fault = "fsync or full_page_writes is off, so it may lose committed data; set both on"
    elif server["encoding"] != "UTF8":
        fault = f"its encoding is {server['encoding']}; make a database with encoding UTF8"
    elif not server["installed"]:
        raise SchemaMismatch(
            f"{_REFUSED}: it has no Holdfast schema.",
            "Check that the DSN names the right database, and make the schema: `holdfast db"
            " upgrade`.",
        )
    else:
        return
    raise SchemaMismatch(f"{_REFUSED}: {fault}.")


def _not_primary() -> NotPrimary:
    return NotPrimary(f"{_REFUSED}: it is read-only or a standby; let the DSN name the primary.")


def _take_role(connection: psycopg.Connection, timeouts: Timeouts) -> DictRow:
    role = connection.role if isinstance(connection, Session) else SINK
    try:
        cursor = connection.cursor(row_factory=dict_row).execute(
            statement("connection/session"),
            {
                "role": role,
                "lock_ms": _milliseconds(timeouts.lock_seconds),
                "statement_ms": _milliseconds(timeouts.statement_seconds),
                "idle_ms": _milliseconds(timeouts.idle_seconds),
            },
        )
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.InsufficientPrivilege) as error:
        quoted = role if role == SINK else f'"{role}"'
        is_missing = isinstance(error, psycopg.errors.InvalidParameterValue)
        raise SchemaMismatch(
            f"the database user {connection.info.user!r} cannot act as {role}"
            f" ({error_text(error)}).",
            "Make the roles: `holdfast db upgrade`."
            if is_missing
            else f'Let an administrator run `GRANT {quoted} TO "{connection.info.user}"`.',
        ) from error
    row = cursor.fetchone()
    if row is None:
        raise LookupError("connection/session returned no row")
    return row


def _refuse_misfit(connection: psycopg.Connection, stream: str) -> None:
    """Refuse a database that this version must not work on; record that it works on another."""
    with fitting():
        cursor = connection.cursor(row_factory=dict_row)
        row = cursor.execute(schema.READ).fetchone() or {"revision": None, "serves_from": None}
        misfit = schema.misfit(row["revision"], row["serves_from"])
        if misfit is not None:
            what, _, advice = misfit.rpartition(": ")
            raise SchemaMismatch(f"{what}.", f"{advice[0].upper()}{advice[1:]}.")
        if schema.records(row["revision"]):
            cursor.execute(schema.RECORD, schema.session("sink", stream))


def _milliseconds(seconds: float) -> str:
    # To Postgres 0 means no limit.
    return f"{max(round(seconds * 1000), 1) if seconds else 0}ms"
