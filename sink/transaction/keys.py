"""The business keys of a batch: recorded for ever, and which of them were known before.

Usually none was, and then COPY records many at half the cost of an INSERT that checks each. So COPY
is tried first, in a savepoint, unless they are few or the caller expects known keys.
"""

from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa

from holdfast.sink.rows.copy_binary import HEADER, TRAILER, one_chunk, rows, uuids
from holdfast.sink.rows.numbering import Mask
from holdfast.sink.rows.postgres_text import array_literal
from holdfast.sink.transaction.database import execute, fitting, statement

INSERTED = 30
"""Keys up to which one INSERT costs no more than a savepoint and a COPY, and fewer round trips."""


class Keys(NamedTuple):
    """The keys of a batch, after they are recorded."""

    fresh: Mask
    """For each entry, whether its key is new."""

    differing: int
    """Number of known keys with different content."""


def add_keys(
    connection: psycopg.Connection, entries: pa.Table, batch_no: int, *, expect_known: bool
) -> Keys:
    """Record the keys of `prepared.ARRIVED` rows; they are unique within the batch."""
    fresh = np.ones(entries.num_rows, bool)
    if not len(fresh):
        return Keys(fresh, 0)
    if not expect_known and len(fresh) > INSERTED and _all_fresh(connection, entries, batch_no):
        return Keys(fresh, 0)
    given = {
        "keys": array_literal(entries["key"]),
        "contents": array_literal(entries["content"]),
        "batch_no": batch_no,
    }
    if execute(connection, "keys/add_keys", **given).rowcount == entries.num_rows:
        return Keys(fresh, 0)
    known = execute(connection, "keys/known_keys", **given).fetchall()
    fresh[[row["position"] for row in known]] = False
    return Keys(fresh, sum(row["differs"] for row in known))


def _all_fresh(connection: psycopg.Connection, entries: pa.Table, batch_no: int) -> bool:
    """Record all keys, or none where one is known."""
    key, content = (uuids(one_chunk(entries[name])) for name in ("key", "content"))
    # Sorted by the first half only: a tie is harmless.
    order = np.argsort(key.view(">u8")[::2].astype(np.uint64))
    stamped = [key[order], content[order], np.full(len(key), batch_no, ">i8")]
    try:
        with (
            connection.transaction(),
            fitting(),
            connection.cursor().copy(statement("keys/copy_keys")) as copy,
        ):
            copy.write(HEADER)
            copy.write(rows(stamped))
            copy.write(TRAILER)
    except psycopg.errors.UniqueViolation:
        return False
    return True
