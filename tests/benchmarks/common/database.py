"""Databases that are dropped at the end of the benchmark."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.migrations.upgrade import upgrade


@contextmanager
def fresh(server: str, copy_of: str | None = None) -> Iterator[str]:
    """Yield the DSN of a new database with Holdfast's tables, or of a copy of another database."""
    name = f"holdfast_bench_{uuid4().hex[:8]}"
    template = f" TEMPLATE {conninfo_to_dict(copy_of)['dbname']}" if copy_of else ""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}{template}".encode())
        try:
            dsn = make_conninfo(server, dbname=name)
            if copy_of is None:
                upgrade(dsn)
            yield dsn
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
