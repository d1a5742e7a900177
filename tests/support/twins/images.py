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
        # One statement for all tables: most are empty, and each round trip counts.
        self._used = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(name, table)
            for name, (table, _) in self._tables.items()
        )

    def take(self) -> Image:
        """Return the rows as they are."""
        rows = {}
        with self._db.transaction():
            self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for (name,) in self._db.execute(self._used).fetchall():
                table, columns = self._tables[name]
                query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(columns, table)
                with self._db.cursor().copy(query) as copy:
                    rows[name] = b"".join(copy)
            sequences: dict[str, int | None] = dict(
                self._db.execute(_SEQUENCES, [self._schema]).fetchall()
            )
        return Image(rows, sequences)

    def put_back(self, image: Image) -> None:
        """Make the rows those of `image`; no trigger runs, and no constraint is deferred to it."""
        with self._db.transaction():
            # Triggers and foreign keys held when the image was taken.
            self._db.execute("SET LOCAL session_replication_role = replica")
            for (name,) in self._db.execute(self._used).fetchall():
                self._db.execute(sql.SQL("DELETE FROM {}").format(self._tables[name][0]))
            for name, content in image.rows.items():
                query = sql.SQL("COPY {} ({}) FROM STDIN").format(*self._tables[name])
                with self._db.cursor().copy(query) as copy:
                    copy.write(content)
            self._db.execute(
                "SELECT setval(format('%%I.%%I', %s::text, name)::regclass, coalesce(last, 1),"
                " last IS NOT NULL) FROM unnest(%s::text[], %s::bigint[]) AS _ (name, last)",
                [self._schema, list(image.sequences), list(image.sequences.values())],
            )
