"""A database for a benchmark: on HOLDFAST_DSN's server, or on an embedded one that goes with it."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import upgrade


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """Yield the DSN of a fresh database with Holdfast's tables."""
    with ExitStack() as stack:
        dsn = os.environ.get("HOLDFAST_DSN")
        if not dsn:
            dsn = stack.enter_context(EmbeddedPostgres(folder / "postgres", keep=False)).dsn
        name = f"holdfast_bench_{uuid4().hex[:8]}"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
            try:
                ours = make_conninfo(dsn, dbname=name)
                upgrade(ours)
                yield ours
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
