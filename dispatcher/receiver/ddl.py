"""The inbox's tables and functions, as plain SQL and for a revision of the service's own Alembic.

    from alembic import op
    from holdfast.receiver import ddl

    def upgrade() -> None:
        ddl.upgrade(op, schema="payouts")

    def downgrade() -> None:
        ddl.downgrade(op, schema="payouts")

All run the statements of `inbox.sql`, which also upgrade an older inbox. Alembic is not imported
here: pass the revision's `op`, online or with `--sql`.
"""

import re
from importlib.resources import files
from typing import Any, Protocol

SCHEMA = "payouts"
_SCHEMA = re.compile(rf"'{SCHEMA}'|\b{SCHEMA}\b")


class Operations(Protocol):
    """The part of `alembic.op` that is used here."""

    def execute(self, sqltext: str, /) -> Any:
        """Run one statement, or print it."""


def ddl(schema: str = SCHEMA) -> str:
    """Return the script that creates the inbox in `schema`, or upgrades it.

    Run it in one transaction. Raises `ValueError` for an invalid schema name.
    """
    return "".join(f"{statement};\n\n" for statement in _statements("inbox.sql", schema))


def upgrade(op: Operations, *, schema: str = SCHEMA, create_schema: bool = True) -> None:
    """Create the inbox, or upgrade it; a revision for each version of `inbox.sql` may call it.

    Without `create_schema` the schema must exist: for a user without the privilege to create it.
    """
    for statement in _statements("inbox.sql", schema)[0 if create_schema else 1 :]:
        op.execute(_escaped(statement))


def downgrade(op: Operations, *, schema: str = SCHEMA) -> None:
    """Drop the inbox. A repeated delivery is then applied again, because its key is gone."""
    for statement in _statements("downgrade.sql", schema):
        op.execute(_escaped(statement))


def quoted(name: str) -> str:
    """Quote `name` as an SQL identifier; raises `ValueError` if it is empty or contains NUL."""
    if not name or "\x00" in name:
        raise ValueError(f"{name!r} is not a valid schema name")
    return '"' + name.replace('"', '""') + '"'


def _statements(file: str, schema: str) -> tuple[str, ...]:
    """Return the statements of `file`, in which the schema of the service replaces `payouts`."""
    literal = "'" + schema.replace("'", "''") + "'"
    names = {SCHEMA: quoted(schema), f"'{SCHEMA}'": literal}
    text = files("holdfast.receiver").joinpath(file).read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    parts = (part.strip().removesuffix(";") for part in code.split(";\n\n"))
    return tuple(_SCHEMA.sub(lambda name: names[name[0]], part) for part in parts if part)


def _escaped(statement: str) -> str:
    # Alembic wraps it in text(), where `:name` is a parameter.
    return statement.replace(":", r"\:")
