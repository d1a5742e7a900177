"""SQL statements by name: the sections of the files beside a store.

A file has several statements, each below a line `-- name: claim` and a comment with what it
guarantees and the index that it needs. A long one has a file of its own.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_SECTION = re.compile(rb"^-- name: (\w+)\n", re.MULTILINE)


@cache
def statement(package: str, name: str) -> bytes:
    """Return a statement of a package.

    `claim` is a section of `statements.sql`; `lanes/claim` is one of `sql/lanes.sql`, or the file
    `sql/lanes/claim.sql`. Raises `LookupError` where there is none.
    """
    group, slash, section = name.rpartition("/")
    text = sections(package, f"sql/{group}.sql" if slash else "statements.sql").get(section)
    file = files(package).joinpath("sql", f"{name}.sql")
    if text is None and slash and file.is_file():
        text = file.read_bytes()
    if text is None:
        raise LookupError(f"{package} has no statement {name}")
    return text


@cache
def sections(package: str, path: str) -> Mapping[str, bytes]:
    """Return the statements of a file by name; none for a file that does not exist."""
    file = files(package).joinpath(path)
    parts = _SECTION.split(file.read_bytes()) if file.is_file() else [b""]
    texts = [text.strip() + b"\n" for text in parts[2::2]]
    return dict(zip(map(bytes.decode, parts[1::2]), texts, strict=True))
