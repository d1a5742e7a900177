"""What operators do, on one connection in the operator's role.

A change and its audit row commit together.
"""

import getpass
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from dispatcher.store.statements import statement
from sink.contract import roles
from sink.contract.dsn import redact
from sink.contract.exits import CommandError, ExitCode
from sink.contract.schema import SCHEMA_REVISION

Row = dict[str, Any]

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30


class OperatorStore:
    """Operator commands on an open connection; use `operator_store(dsn)` to get one."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def add_endpoint(self, settings: Row, *, from_beginning: bool, reason: str) -> Row:
        """Insert an endpoint, by default for decisions from now on; returns its row.

        It waits for routing under way, and routing waits for it: an entry created after `starts_at`
        is routed by somebody who sees the endpoint. With `from_beginning` it gets every entry that
        is stored; see `backfill`. Raises `CommandError` when the name is taken, a value is refused
        by the schema, or routing takes too long.
        """
        with self._transaction():
            self._keep_routing_out()
            try:
                row = self._one("endpoint_add", {**settings, "from_beginning": from_beginning})
            except psycopg.errors.UniqueViolation:
                raise CommandError(
                    f"there is an endpoint {settings['name']!r} already; nothing was changed."
                    " See `holdfast endpoint list`."
                ) from None
            except psycopg.errors.CheckViolation as error:
                raise CommandError(
                    f"the endpoint was not added: the schema refuses it"
                    f" ({error.diag.constraint_name}). Nothing was changed."
                ) from None
            self._audit("endpoint.add", settings["name"], reason, settings)
        if from_beginning:
            self.backfill(settings["name"])
        return row

    def backfill(self, name: str) -> int:
        """Make the lanes of the entries that were routed before an endpoint existed; their number.

        Never in the transaction that adds the endpoint: a batch that commits and is routed between
        its snapshot and its commit would be missed. Doing it again changes nothing. Raises
        `CommandError` when there is no such endpoint, or when it starts later than the beginning.
        """
        with self._transaction():
            found = self._maybe("endpoint_from_beginning", {"name": name})
            if found is None:
                raise CommandError(
                    f"there is no endpoint {name!r} that starts at the beginning; nothing was"
                    " changed. See `holdfast endpoint list`.",
                    ExitCode.NOTHING_MATCHED,
                )
            # It reads every entry that is stored, which may take longer than other commands.
            self._connection.execute("SELECT set_config('statement_timeout', '0', true)")
            return self._run("endpoint_backfill", {"endpoint_id": found["id"]}).rowcount

    def endpoints(self) -> list[Row]:
        """Return every endpoint with its backlog."""
        return self._all("endpoint_list")

    def set_endpoint_state(self, name: str, state: str, reason: str) -> Row:
        """Pause, resume or disable an endpoint; raises `CommandError` when there is none."""
        with self._transaction():
            row = self._maybe("endpoint_set_state", {"name": name, "state": state, "why": reason})
            if row is None:
                raise CommandError(
                    f"there is no endpoint {name!r}; nothing was changed.",
                    ExitCode.NOTHING_MATCHED,
                )
            self._audit(f"endpoint.{state}", name, reason, {"state": state})
        return row

    def streams(self) -> list[Row]:
        """Return every stream with its newest batch."""
        return self._all("stream_list")

    def adopt(self, stream: str, query_id: str, reason: str) -> Row:
        """Let `stream` accept batches of `query_id` from now on; the run in progress is fenced."""
        with self._transaction():
            row = self._maybe("stream_adopt", {"stream": stream, "query_id": query_id})
            if row is None:
                raise CommandError(
                    f"there is no stream {stream!r}; nothing was changed. A stream appears when a"
                    " sink writes to it first; see `holdfast stream list`.",
                    ExitCode.NOTHING_MATCHED,
                )
            detail = {"query_id": query_id, "previous": row["previous_query_id"]}
            self._audit("stream.adopt", stream, reason, detail)
        return row

    def totals(self) -> Row:
        """Return the counts that `holdfast status` shows, as of one snapshot."""
        return self._one("status_totals")

    def dispatchers(self) -> list[Row]:
        """Return the dispatchers whose heartbeat is fresh."""
        return self._all("status_dispatchers")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            yield

    def _keep_routing_out(self) -> None:
        try:
            self._run("route_lock")
        except psycopg.errors.QueryCanceled:
            raise CommandError(
                f"a batch has been in routing for more than {STATEMENT_SECONDS} s, which an"
                " endpoint must not be added in the middle of. Nothing was changed; try again"
                " later."
            ) from None

    def _audit(self, action: str, target: str, reason: str, detail: Row) -> None:
        self._run(
            "audit_add",
            {
                "actor": _actor(),
                "action": action,
                "target": target,
                "reason": reason,
                "detail": Jsonb({k: str(v) for k, v in detail.items() if v is not None}),
            },
        )

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
def operator_store(dsn: str | None) -> Iterator[OperatorStore]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with _connect(_required(dsn)) as connection:
        try:
            yield OperatorStore(connection)
        except psycopg.Error as error:
            cause = redact(str(error)).strip().splitlines()[0]
            raise CommandError(
                f"the database refused: {cause}. This command changed nothing; try again, and see"
                " `holdfast db doctor`."
            ) from None


def _actor() -> str:
    """Who acts, for the audit trail: the login name, or the number of a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


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
        # libpq repeats itself once per address; the first line holds the cause
        cause = redact(str(error)).strip().splitlines()[0]
        raise CommandError(
            f"the database cannot be used: {cause}. Nothing was changed; check --dsn or"
            " HOLDFAST_DSN, or start one with `holdfast local up`."
        ) from None
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: psycopg.Connection[Row]) -> None:
    row = connection.execute(statement("schema_installed")).fetchone()
    if row is None or not row["installed"]:
        raise CommandError("this database has no Holdfast schema: run `holdfast db upgrade` first.")
    try:
        connection.execute(f"SET ROLE {roles.OPERATOR}")
    except psycopg.errors.InsufficientPrivilege:
        raise CommandError(
            f"the database user of this DSN may not act as {roles.OPERATOR}; nothing was changed."
            f" Grant it: GRANT {roles.OPERATOR} TO <user>."
        ) from None
    connection.execute(
        "SELECT set_config('statement_timeout', %s, false)", (f"{STATEMENT_SECONDS}s",)
    )
    row = connection.execute(statement("schema_revision")).fetchone()
    revision = row["revision"] if row else "none"
    if revision != SCHEMA_REVISION:
        raise CommandError(
            f"the database has schema revision {revision}, this version needs {SCHEMA_REVISION}."
            " Nothing was changed: run `holdfast db upgrade`, or use the version of Holdfast that"
            " the database was upgraded for."
        )


def listed(values: Sequence[str] | None) -> list[str]:
    """Return a typer list option as a list; typer passes None for an option that was not given."""
    return list(values or ())
