"""Which entries are written, and with which sequence numbers. Pure; the caller holds the locks.

An entry whose key is known is a duplicate. With `suppress`, an entry that occurred before its
subject's newest entry was overtaken, and one with the type of the entry before it is a repeat: both
are suppressed. The others get their subject's next numbers, in the order of the batch.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Integers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"

SUBJECTS = pa.schema(
    {
        "id": pa.int64(),
        "last_sequence": pa.int64(),
        "last_type": pa.string(),
        "last_occurred_at": pa.timestamp("us", "UTC"),
    }
)
"""The state of the batch's subjects before it, in the order of their names."""

_NEVER = np.iinfo(np.int64).min
_NO_TYPE = -1


class Suppressed(NamedTuple):
    """The entries of a batch that are recorded and not written."""

    rows: Integers
    """Positions in the batch's entries, in their order."""

    subject_id: Integers
    overtaken: Mask
    """For each of `rows`, whether it is older than its subject's newest entry; the others repeat
    their subject's type."""

    def slice(self, first: int, count: int) -> "Suppressed":
        """Return at most `count` of them from `first` on."""
        end = first + count
        return Suppressed(
            self.rows[first:end], self.subject_id[first:end], self.overtaken[first:end]
        )


class Numbered(NamedTuple):
    """The entries of a batch that are written."""

    rows: Integers
    """Positions in the batch's entries, by subject id and sequence."""

    subject_id: Integers
    sequence: Integers
    """For each of `rows`."""

    suppressed: Suppressed

    moved: pa.Table
    """SUBJECTS after the batch, for those with new entries."""

    def at(self, places: Integers) -> "Numbered":
        """Return it with positions in a larger table, in which the entries are at `places`."""
        suppressed = self.suppressed._replace(rows=places[self.suppressed.rows])
        return self._replace(rows=places[self.rows], suppressed=suppressed)


def number(entries: pa.Table, subjects: pa.Table, fresh: Mask, *, suppress: bool) -> Numbered:
    """Number a batch.

    `entries` has subject, type and occurred_at in the batch's order, which is by subject and time;
    `subjects` is SUBJECTS for each distinct subject; `fresh` marks entries with a new key.
    """
    subject = _codes(entries["subject"])
    types = entries["type"].combine_chunks().dictionary_encode()
    type_ = np.asarray(types.indices).astype(np.int64)
    occurred = _micros(entries["occurred_at"])
    identity = _integers(subjects["id"])
    kept, late = np.flatnonzero(fresh), np.zeros(len(fresh), bool)
    if suppress:
        newest = _micros(subjects["last_occurred_at"])
        late = fresh & (occurred < newest[subject])
        kept = np.flatnonzero(fresh & ~late)
        last = pc.fill_null(
            pc.index_in(subjects["last_type"].combine_chunks(), types.dictionary), _NO_TYPE
        )
        before = np.where(
            _first(subject[kept]), np.asarray(last)[subject[kept]], np.roll(type_[kept], 1)
        )
        kept = kept[type_[kept] != before]
    of = subject[kept]
    first = np.flatnonzero(_first(of))
    rank = np.arange(len(kept)) - np.repeat(first, np.diff(np.append(first, len(kept))))
    sequence = _integers(subjects["last_sequence"])[of] + rank + 1
    written = np.zeros(len(fresh), bool)
    written[kept] = True
    suppressed = np.flatnonzero(fresh & ~written)
    order = np.lexsort((sequence, identity[of]))
    return Numbered(
        rows=kept[order],
        subject_id=identity[of][order],
        sequence=sequence[order],
        suppressed=Suppressed(suppressed, identity[subject[suppressed]], late[suppressed]),
        moved=_moved(entries, subjects, kept, of, sequence),
    )


def _moved(
    entries: pa.Table, subjects: pa.Table, kept: Integers, of: Integers, sequence: Integers
) -> pa.Table:
    last = np.flatnonzero(_first(of[::-1])[::-1])
    before = subjects.take(pa.array(of[last]))
    newest = entries.select(["type", "occurred_at"]).take(pa.array(kept[last]))
    # Without suppression an entry may be older than its subject's newest: the time never decreases.
    at = np.maximum(_micros(newest["occurred_at"]), _micros(before["last_occurred_at"]))
    moments = pa.array(at).cast(SUBJECTS.field("last_occurred_at").type)
    return pa.table([before["id"], sequence[last], newest["type"], moments], schema=SUBJECTS)


def _first(of: Integers) -> Mask:
    """Return the mask of elements that differ from the one before."""
    first: Mask = np.ones(len(of), bool)
    first[1:] = of[1:] != of[:-1]
    return first


def _codes(column: pa.ChunkedArray) -> Integers:
    return np.asarray(column.combine_chunks().dictionary_encode().indices).astype(np.int64)


def _micros(column: pa.ChunkedArray) -> Integers:
    return _integers(pc.fill_null(column.cast(pa.int64()), _NEVER))


def _integers(column: pa.ChunkedArray) -> Integers:
    return np.asarray(column.combine_chunks()).astype(np.int64)
