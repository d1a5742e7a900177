"""The state of a key group in the form for a step: numpy columns.

A merchant's number is its position in `Book.names`, which is sorted: sorting by number is sorting
by id, and every output has its documented order.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.schema import (
    NEVER,
    STATE_MERCHANTS,
    STATE_WINDOWS,
    Bools,
    Int64s,
    integers,
    moments,
    one_chunk,
)
from holdfast.spark_app.exposure.state import GroupState


class Windows(NamedTuple):
    """Columns of windows, sorted by (owner, end)."""

    owner: Int64s
    end: Int64s
    exposure: Int64s
    revision: Int64s
    blocks: Int64s
    releases: Int64s

    def where(self, chosen: Bools | Int64s) -> "Windows":
        """Return the chosen windows, in the order of `chosen`."""
        return Windows(*(column[chosen] for column in self))


@dataclass(slots=True)
class Book:
    """The merchants of a key group and their windows in state."""

    names: pa.Array
    held: Bools
    latest: Int64s
    """End of each merchant's latest emitted window; NEVER when there is none."""
    windows: Windows

    @classmethod
    def open(cls, state: GroupState, batch_names: pa.Array) -> tuple[Self, Int64s]:
        """Return the state extended by a batch's merchants, and the number of each of those."""
        known = one_chunk(state.merchants["merchant_id"])
        names = pc.unique(pa.concat_arrays([known, batch_names]))
        place = np.arange(len(names))
        if len(names) > len(known):
            place = pc.sort_indices(names).to_numpy().astype(np.int64)
            names = names.take(pa.array(place))
        held = np.zeros(len(names), np.bool_)
        latest = np.full(len(names), NEVER)
        mine = _numbers(known, names)
        held[mine] = state.merchants["held"].to_numpy()
        latest[mine] = integers(state.merchants["latest_end"].cast(pa.int64()).fill_null(NEVER))
        windows = Windows(
            owner=_numbers(one_chunk(state.windows["merchant_id"]), names),
            end=integers(state.windows["window_end"]),
            exposure=integers(state.windows["exposure_minor"]),
            revision=integers(state.windows["revision"]),
            blocks=integers(state.windows["blocks"]),
            releases=integers(state.windows["releases"]),
        )
        windows = windows.where(by_owner(windows.owner, windows.end))
        return cls(names, held, latest, windows), _numbers(batch_names, names)

    def close(self, absorbed: pa.Table, settled_until_us: int | None) -> GroupState:
        """Return the book as state, without merchants that have neither hold nor windows."""
        # The windows of one end are stored together; within an end, merchants stay in order.
        windows = self.windows.where(np.argsort(self.windows.end, kind="stable"))
        stays = self.held.copy()
        stays[windows.owner] = True
        latest = self.latest[stays]
        merchants = [
            self.names.filter(pa.array(stays)),
            pa.array(self.held[stays]),
            pa.array(latest, mask=latest == NEVER).cast(STATE_MERCHANTS.field("latest_end").type),
        ]
        columns = [
            self.names.take(pa.array(windows.owner)),
            moments(windows.end),
            pa.array(windows.exposure),
            *(pa.array(c.astype(np.int32)) for c in windows[3:]),
        ]
        return GroupState(
            windows=pa.Table.from_arrays(columns, schema=STATE_WINDOWS),
            merchants=pa.Table.from_arrays(merchants, schema=STATE_MERCHANTS),
            absorbed=absorbed,
            settled_until_us=settled_until_us,
        )


def by_owner(owner: Int64s, moment: Int64s) -> Int64s:
    """Return positions in ascending (owner, moment); the order of equals is undefined.

    One packed key sorts ten times faster than two keys; it is used whenever it fits 64 bits.
    """
    if not len(owner):
        return owner
    low = int(moment.min())
    span = int(moment.max()) - low + 1
    if (int(owner.max()) + 1) * span > 2**63 - 1:
        return np.lexsort((moment, owner))
    return np.argsort(owner * span + (moment - low))


def _numbers(ids: pa.Array, names: pa.Array) -> Int64s:
    number: Int64s = pc.index_in(ids, value_set=names).to_numpy().astype(np.int64)
    return number
