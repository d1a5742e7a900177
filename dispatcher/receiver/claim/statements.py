"""The inbox's statements for one schema, with parameters in the form `%(name)s`."""

from functools import cache
from importlib.resources import files

_PERCENT, _DOUBLED = "%", "%%"


def statement(name: str, schema: str) -> str:
    """Return `sql/NAME.sql` for `schema`; raises `ValueError` for an invalid schema name."""
    # A percent sign in the schema's name would begin a parameter.
    return _text(f"sql/{name}.sql").format(schema=quoted(schema).replace(_PERCENT, _DOUBLED))


def script(name: str, schema: str) -> tuple[str, ...]:
    """Return the statements of `NAME.sql`, which have no parameters."""
    text = _text(f"{name}.sql").format(schema=quoted(schema))
    return tuple(part.strip() for part in text.split(";\n") if part.strip())


def quoted(name: str) -> str:
    """Quote `name` as an SQL identifier; raises `ValueError` if it is empty or contains NUL."""
    if not name or "\x00" in name:
        raise ValueError(f"{name!r} is not a valid schema name")
    return '"' + name.replace('"', '""') + '"'


@cache
def _text(path: str) -> str:
    return files("holdfast.receiver.claim").joinpath(path).read_text(encoding="utf-8")
