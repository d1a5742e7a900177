"""From the operator's blobs to what the sink writes: decisions become entries."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import INTEGER_MAX
from holdfast.sink.rows.batch import BatchInput
from holdfast.spark_app.exposure.schema import one_chunk
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, from_blob

KEY_SCHEME = "payout-hold/v1"
TYPE_PREFIX = "payout_hold."
BLOCK = "block"

DATA = (
    "merchant_id",
    "action",
    "window_start",
    "window_end",
    "revision",
    "exposure_minor",
    "limit_minor",
    "release_level_minor",
    "currency",
    "policy_version",
)
"""The fields of `data` in the body of a payout hold."""


@dataclass(frozen=True, slots=True)
class Output:
    """The tables of one micro-batch, with the columns of `holdfast.spark_app.exposure.schema`."""

    windows: pa.Table
    decisions: pa.Table
    late: pa.Table
    refused: pa.Table


def unpack(blobs: pa.Table) -> Output:
    """Read the rows of the operator's DataFrame (the columns of `OUTPUT_DDL`)."""
    found: dict[Kind, list[pa.RecordBatch]] = {kind: [] for kind in Kind}
    for kind, blob in zip(*(blobs[name].to_pylist() for name in ("kind", "blob")), strict=True):
        found[Kind(kind)].append(from_blob(blob, SCHEMAS[Kind(kind)]))
    tables = {
        kind.value: pa.Table.from_batches(found[kind], schema) for kind, schema in SCHEMAS.items()
    }
    return Output(**tables)


def select(blobs: pa.Table) -> BatchInput:
    """Return the sink's tables for a batch: the sink's `select` for this job.

    Emitted windows and late events are companion tables: a replay must hold them unchanged.
    """
    output = unpack(blobs)
    return BatchInput(
        entries=entries(output.decisions.combine_chunks()),
        refused=output.refused,
        companions={Kind.WINDOWS.value: output.windows, Kind.LATE.value: output.late},
    )


def entries(decisions: pa.Table) -> pa.Table:
    """Return one entry for each decision (the columns of `schema.DECISIONS`).

    The body has an `exposure_minor` of at most 2^53-1, positive or negative, because JSON readers
    round beyond. At that limit it means "at least this much", and the decision is still sent. The
    exact amount is in `exposure_window`.
    """
    action = decisions["action"]
    return pa.table(
        {
            "subject": decisions["merchant_id"],
            "type": pc.binary_join_element_wise(TYPE_PREFIX, action, ""),
            "key": _keys(decisions),
            "occurred_at": decisions["window_end"],
            # A block stops outgoing money: it is sent before releases that are due.
            "priority": pc.if_else(pc.equal(action, BLOCK), 0, 1).cast(pa.int16()),
            "data": _data(decisions).to_struct_array(),
        }
    )


def _data(decisions: pa.Table) -> pa.Table:
    place = DATA.index("exposure_minor")
    highest = pc.min_element_wise(decisions["exposure_minor"], pa.scalar(INTEGER_MAX))
    carried = pc.max_element_wise(highest, pa.scalar(-INTEGER_MAX))
    return decisions.select(DATA).set_column(place, DATA[place], carried)


def _keys(decisions: pa.Table) -> pa.Array:
    """Return the business keys: merchant, window end, action and ordinal, nothing of the batch."""
    count = decisions.num_rows
    # A window ends at a whole second: this is RFC 3339 without a fraction.
    ends = decisions["window_end"].cast(pa.timestamp("s", tz="UTC"))
    parts = [
        pa.repeat(KEY_SCHEME, count),
        one_chunk(decisions["merchant_id"]),
        one_chunk(pc.strftime(ends, "%Y-%m-%dT%H:%M:%SZ")),
        one_chunk(decisions["action"]),
        one_chunk(decisions["ordinal"].cast(pa.string())),
    ]
    by_part = np.arange(len(parts) * count).reshape(len(parts), count)
    values = pa.concat_arrays(parts).take(pa.array(by_part.T.ravel()))
    offsets = np.arange(0, len(parts) * (count + 1), len(parts), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
