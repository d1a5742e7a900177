"""The order in which entries are numbered, and which of several with one key is written."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.states import QuarantineReason
from holdfast.sink.rows.copy_binary import one_chunk, uuids
from holdfast.sink.rows.evidence import detail_text, entry_text
from holdfast.sink.rows.hashes import contents
from holdfast.sink.rows.prepared import QuarantinedRow

# The columns after the key order entries of one key: input order never counts.
_ORDER = ("subject", "occurred_at", "key_text", "type", "tail", "priority", "traceparent")


class Settled(NamedTuple):
    """Entries in order, duplicates and conflicts removed."""

    entries: pa.Table
    """ENTRIES in the order in which they are numbered. Keys are unique."""

    places: pa.Array
    """The position of each in the input, from 0."""

    conflicting: list[QuarantinedRow]
    duplicate_count: int


def settle(entries: pa.Table) -> Settled:
    """Put ENTRIES in order and keep the first of each key.

    A later one is a duplicate if its subject, type, time and data are the same, else a conflict.
    """
    places = pc.sort_indices(entries, [(name, "ascending") for name in _ORDER])
    ordered = entries.take(places)
    if _differ(ordered["key"]):
        return Settled(ordered, places, [], 0)
    key = _codes(ordered["key"])
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    content, subject = _codes(contents(ordered)), _codes(ordered["subject"])
    first_of = first[code]
    again = first_of != np.arange(len(key))
    same = (content == content[first_of]) & (subject == subject[first_of])
    differs = again & ~same
    conflicting = ordered.filter(pa.array(differs)).to_pylist()
    return Settled(
        ordered.filter(pa.array(~again)),
        places.filter(pa.array(~again)),
        [conflict(row) for row in conflicting],
        int(again.sum() - differs.sum()),
    )


def conflict(entry: dict[str, object]) -> QuarantinedRow:
    """Quarantine an entry (a row of ENTRIES) whose key another entry of the batch has."""
    detail = f"key hf_{entry['key']} is in this batch before, with other content"
    return QuarantinedRow(QuarantineReason.KEY_CONFLICT, detail_text(detail), entry_text(entry))


def _differ(keys: pa.ChunkedArray) -> bool:
    """Return whether the first halves of all keys differ; keys are hashes, so a tie is rare."""
    halves = np.sort(uuids(one_chunk(keys)).view("u8")[::2])
    return bool((halves[1:] != halves[:-1]).all())


def _codes(column: pa.ChunkedArray) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    codes: np.ndarray[tuple[int], np.dtype[np.int32]] = np.asarray(
        column.combine_chunks().dictionary_encode().indices
    )
    return codes
