"""From the operator's blobs to what the sink writes: decisions become entries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from holdfast.sink.contract import statements
from holdfast.sink.contract.canonical import INTEGER_MAX
from holdfast.sink.rows.batch import BatchInput
from holdfast.spark_app.exposure.schema import one_chunk
from holdfast.spark_app.operator.blobs import SCHEMAS, Kind, from_blob

if TYPE_CHECKING:
    import psycopg

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
    batches: dict[Kind, list[pa.RecordBatch]] = {kind: [] for kind in Kind}
    for kind, blob in zip(*(blobs[name].to_pylist() for name in ("kind", "blob")), strict=True):
        batches[Kind(kind)].append(from_blob(blob, SCHEMAS[Kind(kind)]))
    tables = {
        kind.value: pa.Table.from_batches(batches[kind], schema) for kind, schema in SCHEMAS.items()
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


# Companion tables of a batch: emitted windows, and events that were not applied.


def writer(stream: str) -> Callable[["psycopg.Connection", pa.Table], None]:
    """Return the sink's `also` for this job, which writes the companion tables of `stream`.

    It runs inside the sink's transaction, as the sink's role, and not for a replay.
    """

    def write(connection: "psycopg.Connection", blobs: pa.Table) -> None:
        output = unpack(blobs)
        if output.windows.num_rows:
            connection.execute(_statement("create_window_batch"))
            _copy(connection, "copy_windows", output.windows)
            connection.execute(_statement("upsert_windows"), {"stream": stream})
        if output.late.num_rows:
            late = output.late
            named = late.append_column("stream", pa.repeat(stream, late.num_rows))
            _copy(connection, "copy_late_events", named)

    return write


def _copy(connection: "psycopg.Connection", name: str, table: pa.Table) -> None:
    csv = pa.BufferOutputStream()
    # Arrow quotes every text and leaves null empty, so Postgres distinguishes "" from null.
    pyarrow.csv.write_csv(table, csv, pyarrow.csv.WriteOptions(include_header=False))
    with connection.cursor().copy(_statement(name)) as copy:
        copy.write(csv.getvalue())


def _statement(name: str) -> bytes:
    return statements.statement("holdfast.spark_app.operator", name)
