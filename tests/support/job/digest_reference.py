"""The digest once more, a value at a time in plain Python, to compare the sink's with."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from holdfast.sink.rows.digest import kind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reference_digest(tables: Mapping[str, pa.Table]) -> bytes:
    """SHA-256 over the sorted hashes of the rows of each table that has rows."""
    total = hashlib.sha256(b"holdfast-digest/2\n")
    for name in sorted(tables):
        rows = tables[name].to_pylist()
        if rows:
            columns = [[c, kind(tables[name].schema.field(c).type)] for c in sorted(rows[0])]
            header = json.dumps([name, len(rows), columns], separators=(",", ":"))
            total.update(header.encode() + b"\n")
            hashes = sorted(hashlib.sha256(_fields(row)).digest() for row in rows)
            total.update(hashlib.sha256(b"".join(hashes)).digest())
    return total.digest()


def _fields(row: dict[str, Any]) -> bytes:
    return b"".join(_text(row[name]) for name in sorted(row))


def _text(value: Any) -> bytes:
    match value:
        case None:
            return b"N"
        case dict():
            return b"{" + _fields(value)
        case list():
            return b"[%d:" % len(value) + b"".join(map(_text, value))
        case bool():
            plain = "true" if value else "false"
        case datetime():
            plain = str((value - _EPOCH) // timedelta(microseconds=1))
        case _:
            plain = str(value)
    return b"%d:%s" % (len(plain.encode()), plain.encode())
