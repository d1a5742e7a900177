"""The schema `holdfast` as the server describes it, so that two databases can be compared."""

from typing import Any

import psycopg

OWN_TABLES = """
    SELECT c.oid, c.relname, c.relowner, c.relacl, c.reloptions,
        pg_get_partkeydef(c.oid) AS partition
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname <> 'alembic_version'
"""

STRUCTURE = {
    "tables": f"SELECT t.relname, t.partition FROM ({OWN_TABLES}) t",
    "columns": f"""
        SELECT t.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.attidentity, pg_get_expr(d.adbin, d.adrelid)
        FROM ({OWN_TABLES}) t
        JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
    """,
    "constraints": f"""
        SELECT t.relname, k.conname, pg_get_constraintdef(k.oid)
        FROM ({OWN_TABLES}) t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype <> 'n'
    """,
    "indexes": f"""
        SELECT t.relname, pg_get_indexdef(i.indexrelid)
        FROM ({OWN_TABLES}) t JOIN pg_index i ON i.indrelid = t.oid
    """,
    "enums": """
        SELECT t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)
        FROM pg_type t
        JOIN pg_enum e ON e.enumtypid = t.oid
        JOIN pg_namespace n ON n.oid = t.typnamespace AND n.nspname = 'holdfast'
        GROUP BY t.typname
    """,
}
"""What SQLAlchemy metadata can say of a schema. Not-null constraints are columns here: their names
are the server's, and only from Postgres 18."""

MORE = {
    "storage": f"SELECT t.relname, t.reloptions FROM ({OWN_TABLES}) t",
    "owners": f"SELECT t.relname, t.relowner::regrole::text FROM ({OWN_TABLES}) t",
    "grants": f"""
        SELECT t.relname, a.grantee::regrole::text, a.privilege_type
        FROM ({OWN_TABLES}) t CROSS JOIN aclexplode(t.relacl) a
    """,
    "column grants": f"""
        SELECT t.relname, c.attname, a.grantee::regrole::text, a.privilege_type
        FROM ({OWN_TABLES}) t
        JOIN pg_attribute c ON c.attrelid = t.oid AND NOT c.attisdropped
        CROSS JOIN aclexplode(c.attacl) a
    """,
    "functions": """
        SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid), p.proacl::text
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'holdfast'
    """,
    "schema grants": "SELECT nspacl::text FROM pg_namespace WHERE nspname = 'holdfast'",
}


def structure(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Return tables, columns, constraints, indexes and enums, each sorted."""
    return {kind: _sorted(connection, query) for kind, query in STRUCTURE.items()}


def everything(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Return `structure` and storage, owners, grants and functions besides."""
    return structure(connection) | {
        kind: _sorted(connection, query) for kind, query in MORE.items()
    }


def _sorted(connection: psycopg.Connection, query: str) -> list[str]:
    rows: list[tuple[Any, ...]] = connection.execute(query.encode()).fetchall()
    return sorted(str(row) for row in rows)
