"""The demo's two databases: Holdfast's, and that of the payouts service."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from holdfast.migrations.connect import connection, one_line
from holdfast.migrations.upgrade import upgrade
from holdfast.sink.contract import statements
from holdfast.sink.contract.exits import CommandError

HOLDFAST = "holdfast_demo"
PAYOUTS = "holdfast_demo_payouts"

Row = dict[str, Any]


def prepare(server_dsn: str, names: tuple[str, str] = (HOLDFAST, PAYOUTS)) -> tuple[str, str]:
    """Drop and create both databases and upgrade Holdfast's; returns their DSNs.

    `names` are those of Holdfast's and of the payouts service's.

    Raises `CommandError` if the server does not answer or denies it.
    """
    with connection(server_dsn) as admin:
        admin.autocommit = True
        try:
            for name in names:
                identifier = sql.Identifier(name)
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
                admin.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
        except psycopg.Error as error:
            raise CommandError(
                f"a start drops and creates the databases {' and '.join(names)}, and the server"
                f" refused: {one_line(error, server_dsn)}. No other database was touched. Use an"
                " account with CREATEDB, or unset HOLDFAST_DSN to use the embedded server.",
                code="database_error",
            ) from error
    holdfast = make_conninfo(server_dsn, dbname=names[0])
    upgrade(holdfast)
    return holdfast, make_conninfo(server_dsn, dbname=names[1])


class Databases:
    """Reads both databases through read-only connections."""

    def __init__(self, holdfast: psycopg.Connection[Row], payouts: psycopg.Connection[Row]) -> None:
        self._holdfast = holdfast
        self._payouts = payouts

    def progress(self) -> Row:
        """Return the number of batches, entries, deliveries and unknown outcomes."""
        return _one(_rows(self._holdfast, "progress"))

    def newest_batch_id(self) -> int | None:
        """Return the batch that the sink committed last."""
        rows = _rows(self._holdfast, "newest_batch")
        return rows[0]["batch_id"] if rows else None

    def receiver_counts(self) -> Row:
        """Return the payouts service's counts of deliveries by outcome."""
        return _one(_rows(self._payouts, "receiver_counts"))

    def receiver_actions(self) -> list[Row]:
        """Return every action that the payouts service applied, in order."""
        return _rows(self._payouts, "receiver_actions")

    def receiver_merchants(self, merchants: Sequence[str]) -> list[Row]:
        """Return the actions of the payouts service on `merchants`, in order."""
        return _rows(self._payouts, "receiver_merchants", {"merchants": list(merchants)})


@contextmanager
def reading(holdfast_dsn: str, payouts_dsn: str) -> Iterator[Databases]:
    """Open both databases for reading."""
    with _connect(holdfast_dsn) as holdfast, _connect(payouts_dsn) as payouts:
        yield Databases(holdfast, payouts)


def _connect(dsn: str) -> psycopg.Connection[Row]:
    return psycopg.connect(
        dsn,
        autocommit=True,
        row_factory=dict_row,
        connect_timeout=10,
        application_name="holdfast-demo",
        options="-c statement_timeout=20s -c default_transaction_read_only=on -c timezone=UTC",
    )


def _rows(opened: psycopg.Connection[Row], name: str, values: Row | None = None) -> list[Row]:
    text = statements.statement("holdfast.deploy.local.demo", name)
    return opened.execute(text, values).fetchall()


def _one(rows: list[Row]) -> Row:
    [row] = rows
    return row
