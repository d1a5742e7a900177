"""SQL statements by name: one statement a file, read once.

`replays/add` is the file `replays/sql/add.sql` of the operators; a name without a folder is a
statement of this package, which both the engine and the operators run.
"""

from functools import cache
from importlib.resources import files


@cache
def shared_statement(name: str) -> bytes:
    """Return the text of `dispatcher/shared/sql/{name}.sql`."""
    return (files("dispatcher.shared") / "sql" / f"{name}.sql").read_bytes()


@cache
def delivery_statement(name: str) -> bytes:
    """Return the text of `dispatcher/delivery/store/sql/{name}.sql`, or of a shared statement."""
    if "/" not in name:
        return shared_statement(name)
    return (files("dispatcher.delivery.store") / "sql" / f"{name}.sql").read_bytes()


@cache
def operator_statement(name: str) -> bytes:
    """Return the text of `dispatcher/operators/FOLDER/sql/FILE.sql`, or of a shared statement.

    `name` is `FOLDER/FILE`.
    """
    folder, _, file = name.rpartition("/")
    if not folder:
        return shared_statement(file)
    return (files("dispatcher.operators") / folder / "sql" / f"{file}.sql").read_bytes()
