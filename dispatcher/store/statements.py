"""The statements of this package: one SQL statement a file, read once."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> bytes:
    """Return the text of `sql/{name}.sql`."""
    return (files("dispatcher.store.sql") / f"{name}.sql").read_bytes()
