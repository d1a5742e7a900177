"""Fixtures that every level of tests shares: a real Postgres, one fresh database a test."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

TEMPLATE = "holdfast_test_template"

# A JVM that lives for a minute spends more on compiling well than it gets back.
os.environ.setdefault("HOLDFAST_SPARK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a child inherits it if SIGINT is ignored here.

    A shell that runs the tests in the background has them ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DSN of a server on which databases may be created: HOLDFAST_TEST_DSN, or an embedded one."""
    given = os.environ.get("HOLDFAST_TEST_DSN")
    if given:
        yield given
        return
    from deploy.local.postgres import EmbeddedPostgres

    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), keep=False) as server:
        yield server.dsn


@pytest.fixture(scope="session")
def template_database(server_dsn: str) -> Iterator[str]:
    """Name of a database that was migrated once; each test gets a copy of it."""
    from migrations.upgrade import upgrade

    name = f"{TEMPLATE}_{secrets.token_hex(4)}"
    _create(server_dsn, name, None)
    upgrade(make_conninfo(server_dsn, dbname=name))
    yield name
    _drop(server_dsn, name)


@pytest.fixture
def make_database(server_dsn: str) -> Iterator[Callable[[str | None], str]]:
    """Make databases, empty or from a template; they are dropped after the test."""
    names: list[str] = []

    def make(template: str | None = None) -> str:
        name = f"holdfast_test_{secrets.token_hex(6)}"
        _create(server_dsn, name, template)
        names.append(name)
        return make_conninfo(server_dsn, dbname=name)

    yield make
    for name in names:
        _drop(server_dsn, name)


@pytest.fixture
def dsn(make_database: Callable[[str | None], str], template_database: str) -> str:
    """DSN of a fresh, migrated database; connects as the server's superuser."""
    return make_database(template_database)


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the test's database, for arranging and asserting."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def _create(server_dsn: str, name: str, template: str | None) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template or "template1")
            )
        )


def _drop(server_dsn: str, name: str) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )
