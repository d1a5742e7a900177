"""Which rows are applied and what they add: rules 1 to 3 of a batch.

A row has the first fate that applies:
    future_dated   flagged so before the step
    settled        its window was published before this checkpoint began (`state.resumed`), and the
                   cutoff after its end is after the watermark
    duplicate      its merchant absorbed its event id before: in any window still held in state, or
                   from an earlier row of this batch
    late           the cutoff after its window's end is not after the watermark
    applied        otherwise: it adds to its window's exposure, and its id is absorbed
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.book import Book, Windows, by_owner
from holdfast.spark_app.exposure.errors import ExposureOverflow
from holdfast.spark_app.exposure.rows import Batch
from holdfast.spark_app.exposure.schema import (
    STATE_ABSORBED,
    Bools,
    Int64s,
    integers,
    moments,
    one_chunk,
)

_LOW_BITS = 0xFFFF_FFFF
_ADDED = ["merchant_id", "event_id", "amount_minor"]


class Fate(IntEnum):
    """The fate of a row; the names in lower case are the reasons of `schema.LATE`."""

    APPLIED = 0
    LATE = 1
    FUTURE_DATED = 2
    DUPLICATE = 3
    SETTLED = 4


Fates = npt.NDArray[np.int8]


def fates(batch: Batch, ends: Int64s, absorbed: pa.Table, closed_us: int, settled_us: int) -> Fates:
    """Return the `Fate` of each row, in row order.

    Windows that end by `closed_us` accept no more rows, those that end by `settled_us` never did.
    """
    ids = one_chunk(batch.table["event_id"])
    future = batch.table["future_dated"].to_numpy()[batch.order]
    known = _absorbed_before(absorbed, batch.table)[batch.order]
    late = ends <= closed_us
    settled = (ends <= settled_us) & ~late

    fate = np.full(len(ends), Fate.APPLIED, np.int8)
    fate[late] = Fate.LATE
    fate[known] = Fate.DUPLICATE
    fate[settled] = Fate.SETTLED
    fate[future] = Fate.FUTURE_DATED

    encoded = ids.dictionary_encode()
    distinct = len(encoded.dictionary)
    if distinct < len(ids):
        applied = np.flatnonzero(fate == Fate.APPLIED)
        code = encoded.indices.to_numpy()[batch.order[applied]]
        _, first = np.unique(batch.owner[applied] * distinct + code, return_index=True)
        repeated = np.ones(len(applied), np.bool_)
        repeated[first] = False
        fate[applied[repeated]] = Fate.DUPLICATE
    return fate


def absorb(book: Book, batch: Batch, ends: Int64s, fate: Fates) -> tuple[Bools, pa.Table]:
    """Add the applied rows to the windows of the book.

    Returns which windows of the book have a changed exposure, and the absorbed ids
    (`STATE_ABSORBED`, in row order).
    """
    applied = np.flatnonzero(fate == Fate.APPLIED)
    if not len(applied):
        return np.zeros(len(book.windows.end), np.bool_), STATE_ABSORBED.empty_table()
    rows = batch.table.select(_ADDED).take(pa.array(batch.order[applied]))
    end = ends[applied]
    changed = _add(book, batch.owner[applied], end, integers(rows["amount_minor"]))
    columns = [rows["merchant_id"].dictionary_encode(), moments(end), rows["event_id"]]
    return changed, pa.Table.from_arrays(columns, schema=STATE_ABSORBED)


def _absorbed_before(absorbed: pa.Table, table: pa.Table) -> Bools:
    """Return which rows have an id that their merchant has absorbed, in the table's order."""
    known = np.zeros(table.num_rows, np.bool_)
    ids = one_chunk(table["event_id"])
    # Ids are nearly always new: then one pass over the ids is enough.
    held = pc.is_in(absorbed["event_id"], value_set=ids)
    if not pc.any(held).as_py():
        return known
    held = absorbed.filter(held)
    candidates = np.flatnonzero(pc.is_in(ids, value_set=one_chunk(held["event_id"])))
    rows = table.take(pa.array(candidates))
    pair = _codes(held["merchant_id"].cast(pa.string()), rows["merchant_id"])
    event = _codes(held["event_id"], rows["event_id"])
    pair = pair * (event.max() + 1) + event
    known[candidates] = np.isin(pair[held.num_rows :], pair[: held.num_rows])
    return known


def _codes(first: pa.ChunkedArray, second: pa.ChunkedArray) -> Int64s:
    """Return codes of the two columns, concatenated: equal where the strings are equal."""
    both = pa.concat_arrays([one_chunk(first), one_chunk(second)]).dictionary_encode()
    codes: Int64s = both.indices.to_numpy().astype(np.int64)
    return codes


def _add(book: Book, owner: Int64s, end: Int64s, amount: Int64s) -> Bools:
    """Add amounts to the windows of the book, opening new ones; return which of them changed."""
    old = book.windows
    nothing = np.zeros(len(owner), np.int64)
    owner, end = np.concatenate([old.owner, owner]), np.concatenate([old.end, end])
    order = by_owner(owner, end)
    owner, end = owner[order], end[order]
    starts = np.flatnonzero(np.insert((owner[1:] != owner[:-1]) | (end[1:] != end[:-1]), 0, True))

    def total(column: Int64s, added: Int64s) -> Int64s:
        return np.add.reduceat(np.concatenate([column, added])[order], starts)

    # High and low halves are summed separately: neither can overflow, and the sum is exact.
    high = total(old.exposure >> 32, amount >> 32)
    low = total(old.exposure & _LOW_BITS, amount & _LOW_BITS)
    high += low >> 32
    low &= _LOW_BITS
    beyond = (high > 2**31 - 1) | (high < -(2**31)) | ((high == -(2**31)) & (low == 0))
    if beyond.any():
        place = starts[beyond.argmax()]
        raise ExposureOverflow(
            f"The exposure of merchant {book.names[owner[place]]} in the window that ends at "
            f"{rfc3339_from_micros(int(end[place]))} is beyond 64 bits. "
            "Nothing of the batch was written; check this merchant's amounts."
        )
    exposure = (high << 32) | low
    book.windows = Windows(
        owner=owner[starts],
        end=end[starts],
        exposure=exposure,
        revision=total(old.revision, nothing),
        blocks=total(old.blocks, nothing),
        releases=total(old.releases, nothing),
    )
    changed: Bools = exposure != total(old.exposure, nothing)
    return changed
