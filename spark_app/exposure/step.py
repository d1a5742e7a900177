"""One batch of one key group: `(state, rows, watermark) -> (state, output)`.

Pure: equal arguments give equal results on every machine and in every run, for any order and
chunking of the rows. It uses no Spark, files or clocks.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure import by_hand
from holdfast.spark_app.exposure.by_hand import BLOCK, NOTHING
from holdfast.spark_app.exposure.errors import ExposureOverflow
from holdfast.spark_app.exposure.judge import Emissions, emit, forget
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.schema import (
    BY_HAND,
    DECISIONS,
    LATE,
    NEVER,
    STATE_ABSORBED,
    TIMESTAMP,
    WINDOWS,
    Bools,
    Int64s,
    check_rows,
    integers,
    moments,
    one_chunk,
)
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import Book, GroupState, Windows, by_owner


class Fate(IntEnum):
    """The fate of a row; the names in lower case are the reasons of `schema.LATE`."""

    APPLIED = 0
    LATE = 1
    FUTURE_DATED = 2
    DUPLICATE = 3
    SETTLED = 4


Fates = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Batch:
    """`table` in its original order; `owner` and `occurred` follow `order`, which is row order."""

    table: pa.Table
    order: Int64s
    owner: Int64s
    occurred: Int64s


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The tables that a step publishes (`schema.WINDOWS`, `DECISIONS`, `LATE`), and its new ids."""

    windows: pa.Table
    decisions: pa.Table
    late: pa.Table
    absorbed: pa.Table
    """The ids that the step added to the state: `schema.STATE_ABSORBED`."""

    @classmethod
    def empty(cls) -> Self:
        """Return output without rows."""
        return cls(
            windows=WINDOWS.empty_table(),
            decisions=DECISIONS.empty_table(),
            late=LATE.empty_table(),
            absorbed=STATE_ABSORBED.empty_table(),
        )


# Arrow imports pandas when it makes an array, which a process that only describes the job need not.


@cache
def _no_decisions() -> pa.Table:
    return BY_HAND.empty_table()


@cache
def _words(*words: str) -> pa.Array:
    return pa.array(words)


def step(
    state: GroupState,
    rows: pa.Table,
    watermark_us: int | None,
    policy: Policy,
    settings: Settings,
    decisions: pa.Table | None = None,
) -> tuple[GroupState, StepOutput]:
    """Absorb rows, emit and judge what is due at the watermark, forget what is past its cutoff.

    `rows` has the columns of `schema.ROWS`, for any number of merchants; none at a timer. Without
    rows, `state.absorbed` is not read: it may be empty.
    `watermark_us` is in microseconds since 1970, never less than in the call before; None before
    the first watermark. `decisions` by hand (`schema.BY_HAND`) are in force for the windows of this
    batch. The given state is not modified.

    Raises RowsError, PolicyError (no default in force) or ExposureOverflow.
    """
    watermark, closed = NEVER, NEVER
    if watermark_us is not None:
        watermark, closed = watermark_us, watermark_us - settings.late_cutoff_us
    settled = NEVER if state.settled_until_us is None else state.settled_until_us
    decisions = _no_decisions() if decisions is None else decisions
    is_silent = not rows.num_rows and not decisions.num_rows
    if is_silent and not (_alarms(state, settings) <= watermark).any():
        return state, StepOutput.empty()

    table = check_rows(rows)
    merchant = one_chunk(table["merchant_id"]).dictionary_encode()
    decided = one_chunk(decisions["merchant_id"])
    book, number = Book.open(state, pa.concat_arrays([merchant.dictionary, decided]))
    batch = in_row_order(table, number[merchant.indices.to_numpy()])
    owner, over = number[len(merchant.dictionary) :], max(settled, closed)
    by_hand.learn(book, decisions, owner, over, settings.window_us)
    ends = batch.occurred // settings.window_us * settings.window_us + settings.window_us

    fate = fates(batch, ends, state.absorbed, closed, settled)
    changed, absorbed = absorb(book, batch, ends, fate)
    emissions = emit(book, changed, watermark, policy, settings)
    ids = forget(book, pa.concat_tables([state.absorbed, absorbed]), closed)

    output = StepOutput(
        windows=window_table(book.names, emissions, policy, settings.window_us),
        decisions=decision_table(book.names, emissions, policy, settings.window_us),
        late=late_table(batch, fate, watermark),
        absorbed=absorbed,
    )
    # Once settled windows are late by the ordinary rule, `settled` is no longer needed.
    return book.close(ids, settled if settled > closed else None), output


def next_timer_us(state: GroupState, watermark_us: int | None, settings: Settings) -> int | None:
    """Return the earliest time after the watermark at which something is emitted or forgotten.

    For the state that `step` returned at this watermark: until then, a step without rows changes
    nothing. None when the group waits for rows only.
    """
    alarms = _alarms(state, settings)
    if watermark_us is not None:
        alarms = alarms[alarms > watermark_us]
    return int(alarms.min()) if len(alarms) else None


def _alarms(state: GroupState, settings: Settings) -> Int64s:
    """Return every time at which a window is emitted or forgotten, a hold closes an empty window,
    or the settled windows are late."""
    end = integers(state.windows["window_end"])
    is_open = integers(state.windows["revision"]) == 0
    merchants = state.merchants
    usual = merchants.filter(pc.and_(merchants["held"], merchants["hand_number"].is_null()))
    latest = integers(usual["latest_end"])
    moments = [end[is_open], end + settings.late_cutoff_us, latest + settings.window_us]
    if len(merchants) > merchants["hand_number"].null_count:
        moments.append(by_hand.alarms(merchants, settings.window_us))
    if state.settled_until_us is not None:
        moments.append(np.array([state.settled_until_us + settings.late_cutoff_us]))
    return np.concatenate(moments)


# Which rows are applied and what they add: rules 1 to 3 of a batch.
#
# A row has the first fate that applies:
#     future_dated   flagged so before the step
#     settled        its window was published before this checkpoint began (`state.resumed`), and
#                    the cutoff after its end is after the watermark
#     duplicate      its merchant absorbed its event id before: in any window still held in state,
#                    or from an earlier row of this batch
#     late           the cutoff after its window's end is not after the watermark
#     applied        otherwise: it adds to its window's exposure, and its id is absorbed

_LOW_BITS = 0xFFFF_FFFF
_ADDED = ["merchant_id", "event_id", "amount_minor"]


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


# The rows of a batch in canonical order, regardless of their arrival order.
#
# Row order is (merchant, occurred_at, event_id, type, amount_minor, currency): rows that are equal
# in all of these are the same row.

_TIE_BREAKERS = ("event_id", "type", "amount_minor", "currency", "future_dated")


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


# The output tables of a step.

_REASONS = tuple(fate.name.lower() for fate in Fate)
_ACTIONS = "release", "block"


def window_table(names: pa.Array, emissions: Emissions, policy: Policy, window_us: int) -> pa.Table:
    """Return every emission, as `schema.WINDOWS`."""
    windows = emissions.windows
    if not len(windows.end):
        return WINDOWS.empty_table()
    merchant = names.take(pa.array(windows.owner))
    columns = [
        merchant,
        moments(windows.end - window_us),
        moments(windows.end),
        pa.array(windows.revision.astype(np.int32)),
        pa.array(windows.exposure),
        policy.currencies(merchant),
        policy.versions_at(windows.end),
    ]
    return pa.Table.from_arrays(columns, schema=WINDOWS)


def decision_table(
    names: pa.Array, emissions: Emissions, policy: Policy, window_us: int
) -> pa.Table:
    """Return the emissions that block or release, as `schema.DECISIONS`."""
    decided = np.flatnonzero(emissions.action != NOTHING)
    if not len(decided):
        return DECISIONS.empty_table()
    windows, blocks = emissions.windows.where(decided), emissions.action[decided] == BLOCK
    merchant = names.take(pa.array(windows.owner))
    limit, release_level = policy.limits(merchant, windows.end)
    ordinal = np.where(blocks, windows.blocks, windows.releases)
    columns = [
        merchant,
        _words(*_ACTIONS).take(pa.array(blocks.astype(np.int8))),
        moments(windows.end - window_us),
        moments(windows.end),
        pa.array(windows.revision.astype(np.int32)),
        pa.array(ordinal.astype(np.int32)),
        pa.array(windows.exposure),
        pa.array(limit),
        pa.array(release_level),
        policy.currencies(merchant),
        policy.versions_at(windows.end),
    ]
    return pa.Table.from_arrays(columns, schema=DECISIONS)


def late_table(batch: Batch, fate: Fates, watermark_us: int) -> pa.Table:
    """Return the rows that were not applied, as `schema.LATE`."""
    refused = np.flatnonzero(fate != Fate.APPLIED)
    if not len(refused):
        return LATE.empty_table()
    rows = batch.table.take(pa.array(batch.order[refused]))
    watermark = None if watermark_us == NEVER else watermark_us
    columns = {
        "reason": _words(*_REASONS).take(pa.array(fate[refused])),
        "watermark": pa.repeat(pa.scalar(watermark, TIMESTAMP), len(refused)),
    }
    return pa.Table.from_arrays(
        [columns.get(field.name) or rows[field.name] for field in LATE], schema=LATE
    )
