"""The inbox's tables: as plain SQL, and for a revision of the service's own Alembic history.

    from alembic import op
    from dispatcher.receiver import ddl

    def upgrade() -> None:
        ddl.upgrade(op, schema="payouts")

    def downgrade() -> None:
        ddl.downgrade(op, schema="payouts")

Both ways run the same statements, of `schema.sql`. Nothing of Alembic is imported here: `op` is the
one that the revision has, online or with `--sql`.
"""

from typing import Any, Protocol

from dispatcher.receiver.claim.statements import script

SCHEMA = "payouts"


class Operations(Protocol):
    """What is needed of `alembic.op`."""

    def execute(self, sqltext: str, /) -> Any:
        """Run one statement, or print it."""


def ddl(schema: str = SCHEMA) -> str:
    """Return the script that creates the schema and its tables where they are missing."""
    return "".join(f"{statement};\n\n" for statement in script("schema", schema))


def upgrade(op: Operations, *, schema: str = SCHEMA, create_schema: bool = True) -> None:
    """Create the tables where they are missing.

    Without `create_schema` the schema must be there: for a user who may not create one.
    """
    first = 0 if create_schema else 1
    for statement in script("schema", schema)[first:]:
        op.execute(_escaped(statement))


def downgrade(op: Operations, *, schema: str = SCHEMA) -> None:
    """Drop the tables, and with them what keeps a repeated delivery from being applied again."""
    for statement in script("downgrade", schema):
        op.execute(_escaped(statement))


def _escaped(statement: str) -> str:
    # Alembic makes a text() of it, in which `:name` is a parameter.
    return statement.replace(":", r"\:")
