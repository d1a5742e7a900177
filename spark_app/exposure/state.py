"""The state of one key group between two batches, and the one with which a checkpoint begins."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark_app.exposure.errors import StateError
from holdfast.spark_app.exposure.schema import (
    BY_HAND_COLUMNS,
    NEVER,
    STATE_ABSORBED,
    STATE_MERCHANTS,
    STATE_WINDOWS,
    TIMESTAMP,
    Bools,
    Int64s,
    integers,
    moments,
    one_chunk,
)
from holdfast.spark_app.exposure.settings import Settings


@dataclass(frozen=True, slots=True)
class GroupState:
    """Three tables, with the columns of `schema`, and a time; immutable.

    `absorbed` is by far the largest, and a step changes it in two ways only: it appends rows at the
    end, and rows of forgotten windows leave. So ids are stored in segments, of which
    only the newest is written, and a step without rows does without them.
    """

    windows: pa.Table
    merchants: pa.Table
    absorbed: pa.Table
    settled_until_us: int | None = None
    """Windows up to this end were published before this checkpoint began; see `resumed`."""

    @classmethod
    def empty(cls) -> Self:
        """Return the state of a group without rows, or after all of them are forgotten."""
        return cls(
            STATE_WINDOWS.empty_table(), STATE_MERCHANTS.empty_table(), STATE_ABSORBED.empty_table()
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not self.merchants.num_rows and self.settled_until_us is None


def resumed(settled_until_us: int | None, merchants: pa.Table, settings: Settings) -> GroupState:
    """Return the state with which a new checkpoint of a stream with a published past begins.

    The frontier `settled_until_us` (microseconds; None: nothing was published) is the newest window
    end that the stream has published. All windows up to it were emitted and are settled: the event
    ids absorbed in them were lost with the checkpoint, so a row added to one of them could be
    counted twice. Windows after the frontier are recomputed from the source, with exact ids.

    `merchants` has the columns of `STATE_MERCHANTS`, in any order; merchants without a hold are
    ignored. A hold continues from its `latest_end`, or from the frontier where that is later,
    because no window up to the frontier is emitted again. Raises StateError for a hold without
    either.
    """
    held = merchants.filter(merchants["held"]).sort_by("merchant_id").combine_chunks()
    latest = np.maximum(
        or_never(held["latest_end"]), NEVER if settled_until_us is None else settled_until_us
    )
    if (latest == NEVER).any():
        merchant = held["merchant_id"][int((latest == NEVER).argmax())]
        raise StateError(
            f"Merchant {merchant} is held, and its latest window is not recorded. Nothing was "
            "written; release the hold or correct the record of it, and start again."
        )
    # A hold that another producer set may have any time; windows end at their boundaries.
    latest = latest // settings.window_us * settings.window_us
    place = STATE_MERCHANTS.get_field_index("latest_end")
    field = STATE_MERCHANTS.field(place)
    return GroupState(
        windows=STATE_WINDOWS.empty_table(),
        merchants=held.set_column(place, field, pc.cast(pa.array(latest), TIMESTAMP)),
        absorbed=STATE_ABSORBED.empty_table(),
        settled_until_us=settled_until_us,
    )


# The state of a key group in the form for a step: numpy columns.
#
# A merchant's number is its position in `Book.names`, which is sorted: sorting by number is sorting
# by id, and every output has its documented order.


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


class ByHand(NamedTuple):
    """The decision by hand that is in force for each merchant, as columns; NEVER for none."""

    number: Int64s
    decided: Int64s
    until: Int64s

    @classmethod
    def none(cls, count: int) -> "ByHand":
        """Return columns for merchants without any."""
        return cls(*(np.full(count, NEVER) for _ in cls._fields))

    @property
    def in_force(self) -> Bools:
        """For which merchants there is one."""
        mask: Bools = self.number != NEVER
        return mask


@dataclass(slots=True)
class Book:
    """The merchants of a key group and their windows in state."""

    names: pa.Array
    held: Bools
    latest: Int64s
    """End of each merchant's latest emitted window; NEVER when there is none."""
    by_hand: ByHand
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
        latest[mine] = or_never(state.merchants["latest_end"])
        by_hand = ByHand.none(len(names))
        for column, name in zip(by_hand, BY_HAND_COLUMNS, strict=True):
            column[mine] = or_never(state.merchants[name])
        windows = Windows(
            owner=_numbers(one_chunk(state.windows["merchant_id"]), names),
            end=integers(state.windows["window_end"]),
            exposure=integers(state.windows["exposure_minor"]),
            revision=integers(state.windows["revision"]),
            blocks=integers(state.windows["blocks"]),
            releases=integers(state.windows["releases"]),
        )
        windows = windows.where(by_owner(windows.owner, windows.end))
        return cls(names, held, latest, by_hand, windows), _numbers(batch_names, names)

    def close(self, absorbed: pa.Table, settled_until_us: int | None) -> GroupState:
        """Return the book as state, without merchants of which nothing is to be known."""
        # The windows of one end are stored together; within an end, merchants stay in order.
        windows = self.windows.where(np.argsort(self.windows.end, kind="stable"))
        stays = self.held | self.by_hand.in_force
        stays[windows.owner] = True
        times = (self.latest, *self.by_hand)
        merchants = [
            self.names.filter(pa.array(stays)),
            pa.array(self.held[stays]),
            *(
                pa.array(column[stays], mask=column[stays] == NEVER).cast(field.type)
                for column, field in zip(times, list(STATE_MERCHANTS)[2:], strict=True)
            ),
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


def or_never(column: pa.ChunkedArray) -> Int64s:
    """Return a column of numbers or times as integers; NEVER for a null."""
    return integers(column.cast(pa.int64()).fill_null(NEVER))


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
