"""The databases of the tests themselves: as of today, however long the run has been going."""

from collections.abc import Iterator
from datetime import date

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.dispatch.delivery import partition_days
from tests.support.servers.databases import copy_of, template_on


@pytest.fixture
def template(server_dsn: str) -> Iterator[str]:
    with template_on(server_dsn) as name:
        yield name


def _days_of_entries(dsn: str) -> set[date]:
    with psycopg.connect(dsn) as connection:
        return partition_days(connection, "entry")


def test_template_of_yesterday_is_migrated_again(server_dsn: str, template: str) -> None:
    """Midnight in the middle of a run: yesterday's has a day that is too old, and lacks one."""
    with copy_of(server_dsn, template) as fresh:
        expected = _days_of_entries(fresh)
    with psycopg.connect(server_dsn, autocommit=True) as server:
        with psycopg.connect(make_conninfo(server_dsn, dbname=template)) as old:
            old.execute("CREATE TABLE of_yesterday ()")
            old.execute(f"DROP TABLE holdfast.entry_{max(expected):%Y%m%d}".encode())
        note = sql.SQL("COMMENT ON DATABASE {} IS {}")
        yesterday = server.execute("SELECT (now() AT TIME ZONE 'UTC')::date - 1").fetchone()
        assert yesterday
        server.execute(note.format(sql.Identifier(template), sql.Literal(str(yesterday[0]))))
    with copy_of(server_dsn, template) as copied, psycopg.connect(copied) as connection:
        assert connection.execute("SELECT to_regclass('of_yesterday')").fetchone() == (None,)
        assert _days_of_entries(copied) == expected


def test_template_of_today_is_copied_as_it_is(server_dsn: str, template: str) -> None:
    with psycopg.connect(make_conninfo(server_dsn, dbname=template)) as kept:
        kept.execute("CREATE TABLE of_today ()")
    with copy_of(server_dsn, template) as copied, psycopg.connect(copied) as connection:
        assert connection.execute("SELECT to_regclass('of_today')").fetchone() != (None,)
