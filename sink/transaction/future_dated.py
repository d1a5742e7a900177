"""The limit beyond which rows are future-dated: the database's clock, read in the transaction."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.sink.rows.copy_formats import COPY_ROWS
from holdfast.sink.rows.future_dated import refused
from holdfast.sink.rows.numbering import Integers
from holdfast.sink.rows.prepared import quarantine_table
from holdfast.sink.transaction.content import Content
from holdfast.sink.transaction.database import one_row

if TYPE_CHECKING:
    import psycopg


def latest(connection: "psycopg.Connection", tolerance: timedelta) -> datetime:
    """Return the latest `occurred_at` that is accepted now."""
    limit: datetime = one_row(connection, "rows/future_limit", tolerance=tolerance)["latest"]
    return limit


def quarantined(
    connection: "psycopg.Connection", batch: Content, places: Integers, limit: datetime
) -> Iterator[pa.Table]:
    """Yield the rows of a batch at these positions as QUARANTINED, in chunks."""
    for first in range(0, len(places), COPY_ROWS):
        rows = batch.rows_at(connection, places[first : first + COPY_ROWS].tolist())
        yield quarantine_table([refused(row, limit) for row in rows.to_pylist()])
