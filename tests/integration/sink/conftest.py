"""Drivers on a real database; their connections are closed after the test."""

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo


@pytest.fixture
def app_dsn(dsn: str, db: psycopg.Connection) -> Iterator[str]:
    """DSN of a login user that may act as holdfast_sink and has no other right."""
    name = f"holdfast_test_app_{secrets.token_hex(4)}"
    user = sql.Identifier(name)
    db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'canary'").format(user))
    db.execute(sql.SQL("GRANT holdfast_sink TO {}").format(user))
    yield make_conninfo(dsn, user=name, password="canary")
    db.execute(sql.SQL("DROP ROLE {}").format(user))
