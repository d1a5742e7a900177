"""SQL statements by name: one statement per file, in a folder `sql` beside its store."""

from functools import cache
from importlib.resources import files


@cache
def statement(folder: str, name: str) -> bytes:
    """Return the text of `{folder}/sql/{name}.sql`; `folder` is relative to the dispatcher."""
    return files("holdfast.dispatcher").joinpath(folder, "sql", f"{name}.sql").read_bytes()
