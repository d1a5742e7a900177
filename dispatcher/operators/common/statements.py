"""The operators' SQL statements by name: `replays/add` is the file `replays/sql/add.sql`."""

from holdfast.dispatcher.shared import statements


def statement(name: str) -> bytes:
    """Return the text of a verb's statement, or of a shared one for a name without a folder."""
    verb, slash, file = name.partition("/")
    if not slash:
        return statements.statement("shared", name)
    return statements.statement(f"operators/{verb}", file)
