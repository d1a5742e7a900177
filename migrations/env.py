"""Alembic's environment script; `holdfast.migrations.upgrade` passes the open connection."""

import re
from typing import Any

from alembic import context
from alembic.util.exc import CommandError

from holdfast.sink.contract.tables import SCHEMA, metadata

_PARTITION = re.compile(r"(entry|attempt|suppressed)_\d{8}|stage_\d+")


def _ours(name: str | None, kind: str, _parents: Any) -> bool:
    """Exclude other schemas and the partitions of ensure_partitions() from comparisons."""
    match kind:
        case "schema":
            return name == SCHEMA
        case "table":
            return not _PARTITION.fullmatch(name or "")
        case _:
            return True


if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql",
        # The driver's own style would double every percent sign.
        dialect_opts={"paramstyle": "named"},
        target_metadata=metadata,
        version_table_schema=SCHEMA,
    )
else:
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise CommandError("use `holdfast db upgrade`, which prepares roles and locks first")
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=_ours,
        compare_server_default=True,
    )

with context.begin_transaction():
    context.run_migrations()
