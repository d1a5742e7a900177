"""The migrated database against everything in the contract that describes it."""

import inspect
from collections.abc import Callable
from enum import StrEnum

import psycopg
from alembic import command
from sqlalchemy import CheckConstraint, create_engine
from sqlalchemy.pool import NullPool

from holdfast.migrations.upgrade import _config, head
from holdfast.sink.contract import roles, states
from holdfast.sink.contract.schema import SCHEMA_REVISION
from holdfast.sink.contract.tables import ENUMS, metadata
from tests.support.console.catalogue import structure


def _enums_of_the_contract() -> list[type[StrEnum]]:
    members = inspect.getmembers(states, inspect.isclass)
    return [kind for _, kind in members if issubclass(kind, StrEnum) and kind is not StrEnum]


def test_alembic_finds_nothing_to_generate(dsn: str) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool
    )
    with engine.connect() as connection:
        command.check(_config(migrating=connection))


def test_database_made_from_the_tables_equals_the_migrated_one(
    db: psycopg.Connection, make_database: Callable[[str | None], str]
) -> None:
    empty = make_database(None)
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA holdfast")
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(empty), poolclass=NullPool
    )
    metadata.create_all(engine)
    with psycopg.connect(empty) as made:
        assert structure(made) == structure(db)


def test_checks_have_the_same_names(db: psycopg.Connection) -> None:
    rows = db.execute("""
        SELECT conrelid::regclass::text, conname FROM pg_constraint
        WHERE contype = 'c' AND coninhcount = 0 AND connamespace = 'holdfast'::regnamespace
    """)
    declared = {
        (table.fullname, str(constraint.name))
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    assert set(rows) == declared


def test_every_constraint_and_index_is_named_by_us(db: psycopg.Connection) -> None:
    rows = db.execute("""
        SELECT c.relname, k.conname
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        WHERE k.connamespace = 'holdfast'::regnamespace AND k.contype <> 'n'
            AND NOT c.relispartition AND c.relname <> 'alembic_version'
        UNION
        SELECT t.relname, c.relname
        FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_class t ON t.oid = i.indrelid
        WHERE c.relnamespace = 'holdfast'::regnamespace
            AND NOT t.relispartition AND t.relname <> 'alembic_version'
    """).fetchall()
    assert len(rows) > 50
    strange = [
        (table, name)
        for table, name in rows
        if not any(name.startswith(f"{kind}_{table}") for kind in ("pk", "fk", "uq", "ck", "ix"))
    ]
    assert strange == []


def test_every_enum_has_the_labels_of_the_contract_in_their_order(db: psycopg.Connection) -> None:
    rows = db.execute("""
        SELECT t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)
        FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
        WHERE t.typnamespace = 'holdfast'::regnamespace GROUP BY t.typname
    """)
    assert {name: [str(label) for label in labels] for name, labels in rows} == {
        name: [member.value for member in kind] for name, kind in ENUMS.items()
    }


def test_no_enum_of_the_contract_is_left_out() -> None:
    assert set(ENUMS.values()) == set(_enums_of_the_contract())


def test_schema_revision_is_the_newest_migration(db: psycopg.Connection) -> None:
    row = db.execute("SELECT version_num FROM holdfast.alembic_version").fetchone()
    assert row == (SCHEMA_REVISION,)
    assert head() == SCHEMA_REVISION


def test_roles_of_the_contract_are_those_of_the_server(db: psycopg.Connection) -> None:
    rows = db.execute("""
        SELECT rolname FROM pg_roles WHERE rolname LIKE 'holdfast\\_%' AND NOT rolcanlogin
            AND NOT rolsuper AND NOT rolcreaterole AND NOT rolcreatedb AND NOT rolbypassrls
    """)
    assert {name for (name,) in rows} == set(roles.ALL)
