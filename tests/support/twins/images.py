"""Images of a database's rows: taken and put back in milliseconds, with every session left open.

A machine begins each example from the same image, and restores an earlier one as an operator does
who puts a backup back: tables and sequences return, and what others remember does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
from psycopg import sql

_TABLES = """
    SELECT c.relname, array_agg(a.attname ORDER BY a.attnum) FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     AND a.attgenerated = ''
    WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    GROUP BY c.relname ORDER BY 1
"""
_SEQUENCES = """
    SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = %s ORDER BY 1
"""


@dataclass(frozen=True)
class Image:
    """The rows of each table that has any, and the last value of each sequence; None: not used."""

    rows: Mapping[str, bytes]
    sequences: Mapping[str, int | None]


class Images:
    """Takes images of the tables of one schema."""

    def __init__(self, db: psycopg.Connection, schema: str = "holdfast") -> None:
        """`db` is an autocommit connection of a superuser."""
        self._db = db
        self._schema = schema
        self._tables = {
            name: (
                sql.Identifier(schema, name),
                sql.SQL(", ").join(sql.Identifier(column) for column in columns),
            )
            for name, columns in db.execute(_TABLES, [schema])
        }

    def take(self) -> Image:
        """Return the rows as they are."""
        rows = {}
        with self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for name, (table, columns) in self._tables.items():
                query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(columns, table)
                with self._db.cursor().copy(query) as copy:
                    content = b"".join(copy)
                if content:
                    rows[name] = content
            sequences: dict[str, int | None] = dict(
                self._db.execute(_SEQUENCES, [self._schema]).fetchall()
            )
        return Image(rows, sequences)

    def put_back(self, image: Image) -> None:
        """Make the rows those of `image`; no trigger runs, and no constraint is deferred to it."""
        with self._db.transaction():
            # Triggers and foreign keys held when the image was taken.
            self._db.execute("SET LOCAL session_replication_role = replica")
            for table, _ in self._tables.values():
                self._db.execute(sql.SQL("DELETE FROM {}").format(table))
            for name, content in image.rows.items():
                query = sql.SQL("COPY {} ({}) FROM STDIN").format(*self._tables[name])
                with self._db.cursor().copy(query) as copy:
                    copy.write(content)
            for name, last in image.sequences.items():
                self._db.execute(
                    "SELECT setval(%s::regclass, %s, %s)",
                    [f"{self._schema}.{name}", last or 1, last is not None],
                )
