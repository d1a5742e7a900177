"""The rows of all tables of a database as JSON, and back into a database that was migrated."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

Dump = dict[str, Any]

_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname <> 'alembic_version'
    ORDER BY relname
"""
_COLUMNS = """
    SELECT attname, attidentity <> '' FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
_SEQUENCE = """
    SELECT setval(pg_get_serial_sequence(%s, %s), (SELECT max({column}) FROM {table}))
"""


def dump(dsn: str) -> Dump:
    """Every row of every table, the schema's revision, and when this was."""
    with psycopg.connect(dsn) as db:
        db.execute("SET TIME ZONE 'UTC'")
        tables = [name for (name,) in db.execute(_TABLES)]
        rows = {name: _all(db, name) for name in tables}
        revision = db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone()
        assert revision
        # Rows that a migration made are in every database.
        rows = {name: values for name, values in rows.items() if values}
        return {"made_at": datetime.now(UTC).isoformat(), "revision": revision[0], "rows": rows}


def load(dsn: str, dumped: Dump) -> None:
    """Put the rows into a database with the same revision of the schema.

    Clock times of the dump become as long ago as they were then: its days have no partitions now.
    """
    made_at = datetime.fromisoformat(dumped["made_at"])
    shift = datetime.now(UTC) - made_at
    with psycopg.connect(dsn) as db:
        # Without foreign keys and triggers: the rows are complete.
        db.execute("SET session_replication_role = replica")
        for name, rows in dumped["rows"].items():
            table = sql.Identifier("holdfast", name)
            columns = dict(db.execute(_COLUMNS, [f"holdfast.{name}"]).fetchall())
            statement = sql.SQL(
                "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE"
                " SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %s)"
            ).format(table=table, columns=sql.SQL(", ").join(map(sql.Identifier, columns)))
            db.execute(sql.SQL("DELETE FROM {}").format(table))
            db.execute(statement, [Jsonb([_moved(row, made_at, shift) for row in rows])])
            for column in (column for column, identity in columns.items() if identity):
                advance = sql.SQL(_SEQUENCE).format(column=sql.Identifier(column), table=table)
                db.execute(advance, [f"holdfast.{name}", column])


def _all(db: psycopg.Connection, table: str) -> list[dict[str, Any]]:
    statement = sql.SQL("SELECT to_jsonb(t) FROM {} t").format(sql.Identifier("holdfast", table))
    return sorted((row for (row,) in db.execute(statement)), key=str)


def _moved(row: dict[str, Any], made_at: datetime, shift: timedelta) -> dict[str, Any]:
    def moved(name: str, value: Any) -> Any:
        if not name.endswith("_at") or value is None:
            return value
        moment = datetime.fromisoformat(value)
        # Events and windows are of another time.
        recent = abs(moment - made_at) < timedelta(hours=1)
        return (moment + shift).isoformat() if recent else value

    return {name: moved(name, value) for name, value in row.items()}
