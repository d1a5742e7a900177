"""Databases of the tests: made from a template that was migrated today, and dropped again.

What a migration leaves depends on the day: a partition for each of the days around it. So a run
that goes on past midnight in UTC migrates its template again.
"""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

TEMPLATE = "holdfast_test_template_"
"""What the names of templates begin with. The comment of one is the day of its migration."""

PREPARED = "HOLDFAST_TEST_PREPARED"
"""The variable with the directory of a stopped server, of which each process has a copy."""

PREPARED_TEMPLATE = f"{TEMPLATE}prepared"
"""The template on that server."""

_DAY = """
    SELECT shobj_description(oid, 'pg_database'), (now() AT TIME ZONE 'UTC')::date
    FROM pg_database WHERE datname = %s
"""


@contextmanager
def template_on(server_dsn: str) -> Iterator[str]:
    """Yield the name of a migrated database to copy, and drop it."""
    name = f"{TEMPLATE}{secrets.token_hex(4)}"
    migrate(server_dsn, name)
    try:
        yield name
    finally:
        drop(server_dsn, name)


@contextmanager
def copy_of(server_dsn: str, template: str) -> Iterator[str]:
    """Yield the DSN of a copy of a database, and drop the copy: for a run of several tests."""
    name = f"holdfast_test_{secrets.token_hex(6)}"
    create(server_dsn, name, template)
    try:
        yield make_conninfo(server_dsn, dbname=name)
    finally:
        drop(server_dsn, name)


@contextmanager
def dropping_behind(server_dsn: str, *, all_of_them: bool) -> Iterator[Callable[[str], None]]:
    """Yield what drops a database while the tests go on: a drop waits for a checkpoint.

    What is not dropped in the end is left to a server that is about to go, unless `all_of_them`.
    """
    dropped: list[Future[None]] = []
    with ThreadPoolExecutor(1, "drop") as worker:
        yield lambda name: dropped.append(worker.submit(_drop_in_any_company, server_dsn, name))
        worker.shutdown(cancel_futures=not all_of_them)
    for each in dropped:
        if not each.cancelled():
            each.result()


def create(server_dsn: str, name: str, template: str | None = None) -> None:
    """Make a database, empty or as a copy; a template of another day is migrated anew before."""
    with psycopg.connect(server_dsn, autocommit=True) as server:
        if template is not None and template.startswith(TEMPLATE):
            migrated, today = _days(server, template)
            if migrated != today:
                drop(server_dsn, template)
                migrate(server_dsn, template)
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        server.execute(
            statement.format(sql.Identifier(name), sql.Identifier(template or "template1"))
        )


def drop(server_dsn: str, name: str) -> None:
    """Drop a database, whoever is connected to it, if it is there."""
    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    with psycopg.connect(server_dsn, autocommit=True) as server:
        server.execute(statement.format(sql.Identifier(name)))


@retry(
    retry=retry_if_exception_type(psycopg.OperationalError),
    wait=wait_fixed(0.2),
    stop=stop_after_delay(60),
    reraise=True,
)
def _drop_in_any_company(server_dsn: str, name: str) -> None:
    """Drop a database, also while a test lets this process open no file, or the server no line."""
    drop(server_dsn, name)


def migrate(server_dsn: str, name: str) -> None:
    """Make a migrated database, and note the day."""
    from holdfast.migrations.upgrade import upgrade

    create(server_dsn, name)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        # The day before the migration: one that goes on past midnight is of yesterday.
        _, today = _days(server, name)
        upgrade(make_conninfo(server_dsn, dbname=name))
        note = sql.SQL("COMMENT ON DATABASE {} IS {}")
        server.execute(note.format(sql.Identifier(name), sql.Literal(today.isoformat())))


def _days(server: psycopg.Connection, name: str) -> tuple[date | None, date]:
    """The day of the migration, if one was noted, and the day that it is now."""
    row = server.execute(_DAY, [name]).fetchone()
    assert row, name
    noted, today = row
    return date.fromisoformat(noted) if noted else None, today
