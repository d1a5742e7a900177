"""The inbox tables, as plain SQL and for a revision in the service's own Alembic history.

    from alembic import op
    from holdfast.receiver import ddl

    def upgrade() -> None:
        ddl.upgrade(op, schema="payouts")

    def downgrade() -> None:
        ddl.downgrade(op, schema="payouts")

Both run the same statements, from `schema.sql`. Alembic is not imported here: pass the revision's
`op`, online or with `--sql`.
"""

from typing import Any, Protocol

from holdfast.receiver.claim.statements import script

SCHEMA = "payouts"


class Operations(Protocol):
    """The part of `alembic.op` that is used here."""

    def execute(self, sqltext: str, /) -> Any:
        """Run one statement, or print it."""


def ddl(schema: str = SCHEMA) -> str:
    """Return the script that creates the schema and its tables if they do not exist."""
    return "".join(f"{statement};\n\n" for statement in script("schema", schema))


def upgrade(op: Operations, *, schema: str = SCHEMA, create_schema: bool = True) -> None:
    """Create the tables if they do not exist.

    Without `create_schema` the schema must exist: for a user without the privilege to create it.
    """
    first = 0 if create_schema else 1
    for statement in script("schema", schema)[first:]:
        op.execute(_escaped(statement))


def downgrade(op: Operations, *, schema: str = SCHEMA) -> None:
    """Drop the tables. A repeated delivery is then applied again, because its key is gone."""
    for statement in script("downgrade", schema):
        op.execute(_escaped(statement))


def _escaped(statement: str) -> str:
    # Alembic wraps it in text(), where `:name` is a parameter.
    return statement.replace(":", r"\:")
