"""Databases that outlive one test: for a run that several tests look at."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo


@contextmanager
def copy_of(server_dsn: str, template: str) -> Iterator[str]:
    """Yield the DSN of a copy of a database, and drop the copy."""
    name = f"holdfast_test_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        try:
            yield make_conninfo(server_dsn, dbname=name)
        finally:
            connection.execute(drop.format(sql.Identifier(name)))
