"""Rows as one binary value, in which they pass through Spark from the map side to the sink."""

from enum import StrEnum

import pyarrow as pa

from holdfast.spark_app.exposure.schema import DECISIONS, LATE, WINDOWS
from holdfast.spark_app.input.events import REFUSED


class Kind(StrEnum):
    """The kind of rows in a blob of the operator's output."""

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
"""The columns of the DataFrame for the sink: any number of blobs of each kind."""


def to_blob(rows: pa.Table) -> bytes:
    """Return the rows (at least one) of a table as bytes, without its schema."""
    batches = rows.combine_chunks().to_batches()
    blob: bytes = batches[0].serialize().to_pybytes()
    return blob


def from_blob(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of `to_blob`."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), schema)
