"""Rows as one binary value: how they cross Spark from the map side to the sink."""

from enum import StrEnum

import pyarrow as pa

from spark_app.exposure.schema import DECISIONS, LATE, WINDOWS
from spark_app.input.events import REFUSED


class Kind(StrEnum):
    """What a blob that leaves the operator holds."""

    WINDOWS = "windows"
    DECISIONS = "decisions"
    LATE = "late"
    REFUSED = "refused"


SCHEMAS = {
    Kind.WINDOWS: WINDOWS,
    Kind.DECISIONS: DECISIONS,
    Kind.LATE: LATE,
    Kind.REFUSED: REFUSED,
}

OUTPUT_DDL = "kind string, blob binary"
"""The columns of the DataFrame that reaches the sink: any number of blobs of each kind."""


def to_blob(rows: pa.Table) -> bytes:
    """Return the rows (at least one) of a table whose schema both ends know."""
    batches = rows.combine_chunks().to_batches()
    blob: bytes = batches[0].serialize().to_pybytes()
    return blob


def from_blob(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return what `to_blob` packed."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), schema)
