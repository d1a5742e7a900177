"""Reads the database of a DSN for `holdfast config`: faults are results, not errors."""

from contextlib import suppress
from datetime import UTC, datetime

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from holdfast.dispatcher.operators.common.session import CONNECT_SECONDS, Row, read_range
from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.config.rules import Database
from holdfast.dispatcher.operators.config.settings import HIDDEN
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract import roles
from holdfast.sink.contract.dsn import redact

_SECRETS = ("password", "sslpassword", "passfile")
_SET_PRIVILEGE_SINCE = 160_000
STATEMENT_SECONDS = 10

Connection = psycopg.Connection[Row]


def shown(dsn: str) -> str | None:
    """Return `dsn` redacted, or None if libpq cannot parse it.

    Nothing of an invalid one is shown, because any part of it may be the password.
    """
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        return None
    hidden = {name: HIDDEN for name in _SECRETS if name in parts}
    return make_conninfo("", **{**parts, **hidden})


def libpq_version() -> str:
    """Return the version of libpq in use."""
    return psycopg.pq.version_pretty(psycopg.pq.version())


def examine(dsn: str | None) -> tuple[Database, list[Row]]:
    """Return the database and its endpoints' references. Reads only; faults are in the result."""
    if not dsn:
        return Database(None, "no database is named"), []
    redacted = shown(dsn)
    if redacted is None:
        expected = "expected postgresql://user@host/database or 'host=... dbname=...'"
        return Database(None, f"the DSN cannot be read: {expected}"), []
    try:
        with psycopg.connect(
            dsn,
            connect_timeout=CONNECT_SECONDS,
            autocommit=True,
            row_factory=dict_row,
            application_name="holdfast-config",
        ) as connection:
            connection.execute(f"SET search_path = {roles.SEARCH_PATH}".encode())
            connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS}s'".encode())
            return _read(connection, redacted)
    except psycopg.Error as error:
        # libpq writes a line for each address; the first one holds the cause.
        cause = redact(str(error)).strip().splitlines()[0]
        return Database(redacted, one_line(cause)), []


def _read(connection: Connection, dsn: str) -> tuple[Database, list[Row]]:
    before = datetime.now(UTC)
    server = connection.execute(statement("config/server")).fetchone() or {}
    middle = before + (datetime.now(UTC) - before) / 2
    privilege = "SET" if server["number"] >= _SET_PRIVILEGE_SINCE else "MEMBER"
    parameters = {"privilege": privilege, "roles": list(roles.ALL)}
    allowed = connection.execute(statement("config/roles"), parameters).fetchall()
    stored, endpoints = _schema(connection)
    database = Database(
        dsn,
        server=f"Postgres {server['version'].split()[0]}",
        user=server["name"],
        revision=stored["revision"],
        serves_from=stored["serves_from"],
        roles={row["name"]: row["allowed"] for row in allowed},
        clock_difference_seconds=(server["now"] - middle).total_seconds(),
    )
    return database, endpoints


def _schema(connection: Connection) -> tuple[Row, list[Row]]:
    stored: Row = {"revision": None, "serves_from": None}
    endpoints: list[Row] = []
    installed = connection.execute(statement("schema_installed")).fetchone()
    if installed is None or not installed["installed"]:
        return stored, endpoints
    # Without the rights, or before the first upgrade, the result lacks these parts.
    with suppress(psycopg.DatabaseError):
        connection.execute(f"SET ROLE {roles.OPERATOR}".encode())
    with suppress(psycopg.ProgrammingError):
        stored = read_range(connection)
        endpoints = connection.execute(statement("endpoints/outbound"), {"name": None}).fetchall()
    return stored, endpoints
