"""The rows of a batch in canonical order, regardless of their arrival order.

Row order is (merchant, occurred_at, event_id, type, amount_minor, currency): rows that are equal in
all of these are the same row.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.book import by_owner
from holdfast.spark_app.exposure.schema import Bools, Int64s, integers

_TIE_BREAKERS = ("event_id", "type", "amount_minor", "currency", "future_dated")


@dataclass(frozen=True, slots=True)
class Batch:
    """`table` in its original order; `owner` and `occurred` follow `order`, which is row order."""

    table: pa.Table
    order: Int64s
    owner: Int64s
    occurred: Int64s


def in_row_order(table: pa.Table, owner: Int64s) -> Batch:
    """Put rows in order; `owner` is the number of each row's merchant."""
    occurred = integers(table["occurred_at"])
    order = by_owner(owner, occurred)
    owner, occurred = owner[order], occurred[order]
    same = (owner[1:] == owner[:-1]) & (occurred[1:] == occurred[:-1])
    if same.any():
        order = _break_ties(table, order, same)
    return Batch(table, order, owner, occurred)


def _break_ties(table: pa.Table, order: Int64s, same: Bools) -> Int64s:
    """Sort runs of rows with the same merchant and time by the remaining columns."""
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    run = np.cumsum(~np.insert(same, 0, False))[tied]
    rows = table.select(list(_TIE_BREAKERS)).take(pa.array(order[tied]))
    keys = [("run", "ascending"), *((name, "ascending") for name in _TIE_BREAKERS)]
    inner = pc.sort_indices(rows.append_column("run", pa.array(run)), sort_keys=keys)
    order = order.copy()
    order[tied] = order[tied][inner.to_numpy()]
    return order
