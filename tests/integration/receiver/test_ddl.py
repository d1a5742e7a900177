"""The inbox's tables, made in each of the ways that a service may choose."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from holdfast.receiver import Inbox
from holdfast.receiver.ddl import ddl
from tests.support.console.catalogue import STRUCTURE
from tests.support.dispatch.inboxes import engine_of

# The catalogue describes the schema of this name, whoever made it.
SCHEMA = "holdfast"
QUERIES = {
    **STRUCTURE,
    "storage": "SELECT reloptions FROM pg_class WHERE relname LIKE 'inbox%'",
    "functions": "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname LIKE 'inbox%'",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}

ENVIRONMENT = """
from alembic import context
from sqlalchemy.dialects import postgresql

connection = context.config.attributes.get("connection")
if connection is None:
    context.configure(dialect_name="postgresql", output_buffer=context.config.output_buffer)
else:
    context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
"""
REVISION = """
from alembic import op
from holdfast.receiver import ddl

revision, down_revision = "0001", None


def upgrade():
    ddl.upgrade(op, schema="holdfast")


def downgrade():
    ddl.downgrade(op, schema="holdfast")
"""


@pytest.fixture
def history(tmp_path: Path) -> Config:
    """Alembic's configuration of a service whose only revision makes the inbox."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    (tmp_path / "versions" / "0001_inbox.py").write_text(REVISION)
    config = Config(stdout=StringIO(), output_buffer=StringIO())
    config.set_main_option("script_location", str(tmp_path))
    return config


def structure(dsn: str) -> dict[str, list[str]]:
    with psycopg.connect(dsn) as connection:
        return {
            name: sorted(map(str, connection.execute(query.encode()).fetchall()))
            for name, query in QUERIES.items()
        }


def migrate(config: Config, dsn: str, *, up: bool = True) -> None:
    with engine_of(dsn).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head") if up else command.downgrade(config, "base")


def test_plain_sql_and_a_revision_make_the_same_tables(
    make_database: Callable[[str | None], str], history: Config
) -> None:
    plain, migrated, printed = (make_database(None) for _ in range(3))
    with psycopg.connect(plain) as connection:
        connection.execute(ddl(SCHEMA).encode())
        connection.execute(Inbox(SCHEMA).ddl)
    command.upgrade(history, "head", sql=True)
    with psycopg.connect(printed) as connection:
        connection.execute(history.output_buffer.getvalue().encode())
    migrate(history, migrated)
    made = structure(plain)
    assert len(made["tables"]) == 2
    assert "inbox_receive" in str(made["functions"])
    assert "fillfactor=70" in str(made["storage"])
    assert structure(migrated) == structure(printed) == made


def test_revision_is_taken_back_and_leaves_the_schema(
    make_database: Callable[[str | None], str], history: Config
) -> None:
    dsn = make_database(None)
    migrate(history, dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE holdfast.of_the_service ()")
    migrate(history, dsn, up=False)
    tables = structure(dsn)["tables"]
    assert len(tables) == 1
    assert "of_the_service" in tables[0]
    migrate(history, dsn)
    assert len(structure(dsn)["tables"]) == 3


def test_newer_inbox_is_not_overwritten(make_database: Callable[[str | None], str]) -> None:
    with psycopg.connect(make_database(None), autocommit=True) as connection:
        connection.execute(Inbox().ddl)
        connection.execute(
            "CREATE OR REPLACE FUNCTION payouts.inbox_version() RETURNS integer"
            " LANGUAGE sql IMMUTABLE AS 'SELECT 99'"
        )
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            connection.execute(Inbox().ddl)


def test_running_the_tables_again_waits_for_no_delivery(
    make_database: Callable[[str | None], str],
) -> None:
    dsn = make_database(None)
    with psycopg.connect(dsn) as connection, psycopg.connect(dsn) as other:
        connection.execute(Inbox().ddl)
        connection.commit()
        connection.execute(
            "SELECT payouts.inbox_receive('hf_' || repeat('a', 32), sha256('x'), 'm', 1)"
        )
        other.execute("SET lock_timeout = '5s'")
        other.execute(Inbox().ddl)
