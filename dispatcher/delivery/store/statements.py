"""The engine's SQL statements by name: `settling/lane_settle` is a file below `sql/`."""

from dispatcher.shared import statements


def statement(name: str) -> bytes:
    """Return the text of `sql/{name}.sql`, or of a shared statement for a name without a folder."""
    return statements.statement("delivery/store" if "/" in name else "shared", name)
