"""The map side: parse and validate rows, and pack them by key group for the one shuffle.

Merchants are spread over a fixed number of key groups. Each task sends one row per group instead of
one per event: the group's events as an Arrow blob, so that no text becomes an object on the way.
Refused rows go to the first group, so that all rows of a batch reach the sink on one path.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import ROWS, TIMESTAMP
from holdfast.spark_app.input.events import Parsed
from holdfast.spark_app.input.text_bytes import crc32
from holdfast.spark_app.input.validate import validate
from holdfast.spark_app.operator.blobs import to_blob

PACKED = pa.schema(
    {
        "key_group": pa.int32(),
        "plausible_at": TIMESTAMP,
        "events": pa.binary(),
        "refused": pa.binary(),
    }
)
"""`plausible_at`: the newest time in these rows that may advance the watermark; null for none."""

PACKED_DDL = "key_group int, plausible_at timestamp, events binary, refused binary"

ROWS_PER_PACK = 200_000
BYTES_PER_PACK = 64 * 1024 * 1024


@dataclass(frozen=True)
class Packer:
    """The function for `mapInArrow`: batches of source rows in, batches of PACKED out.

    Every input batch has the columns that `parse` reads, and `batch_time`, the batch's own
    timestamp, which is the same in a replay.
    """

    parse: Callable[[pa.RecordBatch], Parsed]
    policy: Policy
    future_tolerance_us: int
    groups: tuple[int, ...]
    """The numbers of the key groups (`groups.group_numbers`)."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _gathered(batches):
            good, refused = validate(self.parse(rows), self.policy)
            events = self._with_future_dated(good, rows.column("batch_time")[0])
            yield pack(events, refused, self.groups)
        freeze_imports()

    def _with_future_dated(self, events: pa.RecordBatch, batch_time: pa.Scalar) -> pa.RecordBatch:
        newest = batch_time.cast(pa.int64()).as_py() + self.future_tolerance_us
        future = pc.greater(events.column("occurred_at"), pa.scalar(newest, TIMESTAMP))
        return pa.RecordBatch.from_arrays(
            [future if name == "future_dated" else events.column(name) for name in ROWS.names],
            schema=ROWS,
        )


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, for fewer kernel calls and fewer blobs."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held += [batch] if batch.num_rows else []
        if (
            sum(part.num_rows for part in held) >= ROWS_PER_PACK
            or sum(part.nbytes for part in held) >= BYTES_PER_PACK
        ):
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def pack(
    events: pa.RecordBatch, refused: pa.RecordBatch, groups: tuple[int, ...]
) -> pa.RecordBatch:
    """Return one row of PACKED per key group with events, and one for all refused rows."""
    packed: list[tuple[int, bytes | None, bytes | None]] = []
    if events.num_rows:
        packed += [(group, to_blob(part), None) for group, part in _by_group(events, groups)]
    if refused.num_rows:
        packed.append((groups[0], None, to_blob(pa.Table.from_batches([refused]))))
    plausible = pc.max(events["occurred_at"].filter(pc.invert(events["future_dated"])))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([group for group, _, _ in packed], pa.int32()),
            pa.array([plausible.as_py()] * len(packed), TIMESTAMP),
            pa.array([blob for _, blob, _ in packed], pa.binary()),
            pa.array([blob for _, _, blob in packed], pa.binary()),
        ],
        schema=PACKED,
    )


def _by_group(rows: pa.RecordBatch, groups: tuple[int, ...]) -> Iterator[tuple[int, pa.Table]]:
    merchants = rows["merchant_id"].dictionary_encode()
    # `groups.key_group` for a whole column.
    group_of = (crc32(merchants.dictionary) % len(groups)).astype(np.uint16)
    owner = group_of[merchants.indices.to_numpy()]
    ordered = pa.Table.from_batches([rows]).take(pa.array(np.argsort(owner, kind="stable")))
    ends = np.cumsum(np.bincount(owner, minlength=len(groups))).tolist()
    for group, (start, end) in zip(groups, pairwise([0, *ends]), strict=True):
        if start < end:
            yield group, ordered.slice(start, end - start)


# What a Python worker of Spark does once, at the end of its first task.


@cache
def freeze_imports() -> None:
    """Take what is imported so far out of the garbage collector's view; once per process.

    A worker that is reused collects garbage after each task (`pyspark.daemon`), and would go
    through every object of Spark, Arrow and NumPy each time: some 70 ms for a batch of a few rows.
    """
    gc.collect()
    gc.freeze()
