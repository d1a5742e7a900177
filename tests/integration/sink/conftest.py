"""Drivers on a real database; their connections are closed after the test."""

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.job.driver import Driver

MakeDriver = Callable[..., Driver]


@pytest.fixture
def driver(dsn: str) -> Iterator[MakeDriver]:
    """Start drivers: `driver()` is a new checkpoint, `driver(query_id=...)` a restart from one."""
    started: list[Driver] = []

    def start(given_dsn: str | None = None, **settings: Any) -> Driver:
        started.append(Driver(given_dsn or dsn, **settings))
        return started[-1]

    yield start
    for each in started:
        each.sink.close()


@pytest.fixture
def app_dsn(dsn: str, db: psycopg.Connection) -> Iterator[str]:
    """DSN of a login user that may act as holdfast_sink and has no other right."""
    name = f"holdfast_test_app_{secrets.token_hex(4)}"
    user = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'canary'").format(user))
    db.execute(sql.SQL("GRANT holdfast_sink TO {}").format(user))
    yield make_conninfo(dsn, user=name, password="canary")
    db.execute(sql.SQL("DROP ROLE {}").format(user))
