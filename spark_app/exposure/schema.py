"""The columns of the exposure step's input, state and output.

Money is int64 in minor units; times are microseconds in UTC; a comment marks columns that may be
null.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.spark_app.exposure.errors import RowsError

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

NEVER: Final = -(2**63)
"""A time before all others: for an absent watermark, and for windows never emitted."""


def _columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


ROWS: Final = pa.schema(
    {
        "event_id": pa.string(),
        "merchant_id": pa.string(),
        "type": pa.string(),
        "currency": pa.string(),
        "amount_minor": pa.int64(),
        "occurred_at": TIMESTAMP,
        "future_dated": pa.bool_(),
    }
)
"""The input of the step: validated events in any order, without nulls."""

STATE_WINDOWS: Final = _columns(
    merchant_id=pa.string(),
    window_end=TIMESTAMP,
    exposure_minor=pa.int64(),
    revision=pa.int32(),  # 0 while the window is open, then the number of its emissions
    blocks=pa.int32(),  # how many blocks this window decided: the ordinal of the last one
    releases=pa.int32(),
)
"""Sorted by (window_end, merchant_id), unique: the windows of one end are stored together."""

STATE_MERCHANTS: Final = pa.schema(
    [
        pa.field("merchant_id", pa.string(), nullable=False),
        pa.field("held", pa.bool_(), nullable=False),
        pa.field("latest_end", TIMESTAMP),  # null: nothing was emitted yet
        pa.field("hand_number", pa.int64()),  # null: no decision by hand is in force, as below
        pa.field("hand_decided_at", TIMESTAMP),
        pa.field("hand_until", TIMESTAMP),  # null: until the next decision by hand
    ]
)
"""Every merchant that is held, has a window or is decided by hand; by merchant_id, unique."""

BY_HAND_COLUMNS: Final = ("hand_number", "hand_decided_at", "hand_until")
"""The columns of `STATE_MERCHANTS` with the decision by hand that is in force."""

STATE_ABSORBED: Final = _columns(
    merchant_id=pa.dictionary(pa.int32(), pa.string()),  # few merchants have most of the ids
    window_end=TIMESTAMP,
    event_id=pa.string(),
)
"""The exact ids in the windows in state; within one window, oldest batch first."""

BY_HAND: Final = pa.schema(
    [
        pa.field("merchant_id", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),  # the highest one of a merchant counts
        pa.field("block", pa.bool_(), nullable=False),  # false: a release
        pa.field("decided_at", TIMESTAMP, nullable=False),
        pa.field("until", TIMESTAMP),  # null: until the next decision by hand
    ]
)
"""Decisions by hand of which a batch learns, in any order."""

WINDOWS: Final = _columns(
    merchant_id=pa.string(),
    window_start=TIMESTAMP,
    window_end=TIMESTAMP,
    revision=pa.int32(),
    exposure_minor=pa.int64(),
    currency=pa.string(),
    policy_version=pa.string(),
)
"""Every emission, sorted by merchant and then in the order of emission."""

DECISIONS: Final = _columns(
    merchant_id=pa.string(),
    action=pa.string(),  # block, release
    window_start=TIMESTAMP,
    window_end=TIMESTAMP,
    revision=pa.int32(),
    ordinal=pa.int32(),
    exposure_minor=pa.int64(),
    limit_minor=pa.int64(),
    release_level_minor=pa.int64(),
    currency=pa.string(),
    policy_version=pa.string(),
)
"""Every block and release, sorted by merchant and then in the order of decision."""

LATE: Final = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),  # of `LateReason`
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("merchant_id", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("amount_minor", pa.int64(), nullable=False),
        pa.field("currency", pa.string(), nullable=False),
        pa.field("occurred_at", TIMESTAMP, nullable=False),
        pa.field("watermark", TIMESTAMP),  # null: there was none yet
    ]
)
"""Every row that was not applied, sorted by merchant and then in row order."""


def check_rows(rows: pa.Table) -> pa.Table:
    """Return the columns of `ROWS`, each in one chunk; raises RowsError for any other shape."""
    for field in ROWS:
        position = rows.schema.get_field_index(field.name)
        if position < 0:
            raise RowsError(f"The rows have no column {field.name} (or have it twice).")
        type_ = rows.schema.field(position).type
        if type_ != field.type:
            raise RowsError(f"Column {field.name} is {type_}, expected {field.type}.")
        if rows.column(position).null_count:
            raise RowsError(
                f"Column {field.name} holds a null; such rows belong in quarantine before the step."
            )
    return rows.select(ROWS.names).combine_chunks()


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; free when it already is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def integers(column: pa.ChunkedArray) -> Int64s:
    """Return a column of integers or times without nulls as int64 (microseconds since 1970)."""
    array = one_chunk(column)
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    values: Int64s = array.to_numpy(zero_copy_only=True).astype(np.int64, copy=False)
    return values


def moments(values: Int64s) -> pa.Array:
    """Return microseconds since 1970 as a column of times."""
    return pa.array(values).view(TIMESTAMP)
