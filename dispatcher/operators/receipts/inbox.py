"""The other side of a comparison: a receiver's inbox, in its own database. Reads only."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from holdfast.dispatcher.operators.common.session import CONNECT_SECONDS
from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.receipts.store import PAGE, ComparedRange
from holdfast.dispatcher.outbound.inquiry_answer import ReceiverRecord
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.dsn import redact
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.wire import ReceiptOutcome

Row = dict[str, Any]


class InboxTables:
    """The inbox of one schema; use `inbox_tables(dsn, schema)` to get it."""

    def __init__(self, connection: psycopg.Connection[Row], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def known(self, keys: Sequence[str]) -> dict[str, ReceiverRecord]:
        """Return what the inbox knows of `keys`; unknown ones are left out."""
        with self._transaction() as cursor:
            cursor.execute(self._statement("receipts/inbox_known"), {"keys": list(keys)})
            return {row["key"]: _record_of(row) for row in cursor}

    def received(self, range_: ComparedRange) -> Iterator[list[ReceiverRecord]]:
        """Yield every key that was first processed in the time range, `PAGE` at once, unordered.

        Through a cursor and not page by page: an inbox without an index on its times is then
        scanned once, not once for each page.
        """
        times = {"since": range_.since, "until": range_.until, "subject": range_.subject}
        with self._transaction(), self._connection.cursor("holdfast_receipts") as cursor:
            cursor.execute(self._statement("receipts/inbox_received"), times)
            while rows := cursor.fetchmany(PAGE):
                yield [_record_of(row) for row in rows]

    def disordered(self, range_: ComparedRange) -> Iterator[tuple[ReceiverRecord, int]]:
        """Yield what was applied after a later entry of its subject, with that one's sequence."""
        times = {"since": range_.since, "until": range_.until}
        with self._transaction(), self._connection.cursor("holdfast_order") as cursor:
            cursor.execute(self._statement("receipts/inbox_disordered"), times)
            while rows := cursor.fetchmany(PAGE):
                yield from ((_record_of(row), row["highest"]) for row in rows)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Row]]:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(statement("receipts/inbox_session"))
            yield cursor

    def _statement(self, name: str) -> sql.Composed:
        return sql.SQL(statement(name).decode()).format(schema=sql.Identifier(self._schema))


@contextmanager
def inbox_tables(dsn: str, schema: str) -> Iterator[InboxTables]:
    """Connect to a receiver's database, read-only.

    Raises `CommandError` when that is not possible, and for errors of the database inside the
    block. No message contains the DSN.
    """
    with _connect(dsn) as connection:
        connection.read_only = True
        try:
            yield InboxTables(connection, schema)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise CommandError(
                f"the receiver's database has no inbox in the schema {schema!r}. Nothing was"
                " changed on either side; name the schema with --schema.",
                code="inbox_missing",
            ) from None
        except psycopg.Error as error:
            raise CommandError(
                f"the receiver's database did not answer: {_cause(error)}. The comparison is not"
                " complete; nothing was changed on either side. Try again.",
                code="receiver_database_unavailable",
            ) from None


def _connect(dsn: str) -> psycopg.Connection[Row]:
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        # libpq quotes the part that it cannot read, which may belong to the password.
        raise CommandError(
            "--receiver cannot be read: expected postgresql://user@host/database,"
            " 'host=... dbname=...', or env:VAR with one of them. Nothing was compared.",
            ExitCode.USAGE,
            code="invalid_dsn",
        ) from None
    try:
        return psycopg.connect(
            dsn,
            connect_timeout=CONNECT_SECONDS,
            row_factory=dict_row,
            application_name="holdfast-receipts",
            prepare_threshold=None,  # a pooler in transaction mode keeps no prepared statement
        )
    except psycopg.Error as error:
        raise CommandError(
            f"the receiver's database cannot be reached: {_cause(error)}. Nothing was compared;"
            " check --receiver.",
            code="receiver_database_unavailable",
        ) from None


def _cause(error: psycopg.Error) -> str:
    # libpq writes a line for each address; the first one holds the cause.
    return (redact(str(error)).strip().splitlines() or [type(error).__name__])[0]


def _record_of(row: Row) -> ReceiverRecord:
    return ReceiverRecord(
        key=row["key"],
        outcome=ReceiptOutcome(row["outcome"]),
        applied_at=rfc3339(row["received_at"]),
        body_sha256=row["body_sha256"],
        subject=row["subject"],
        sequence=row["sequence"],
    )
