"""The subjects of a batch: locked before their entries are numbered, advanced afterwards.

The sequence belongs to the subject. The transition state, by which repeats are suppressed, is kept
for each stream that writes the subject. The holder of the subject's row lock may change both.
"""

from datetime import datetime
from typing import NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.rows.numbering import SUBJECTS
from holdfast.sink.rows.postgres_text import array_literal, read_csv
from holdfast.sink.transaction.content import Stamp
from holdfast.sink.transaction.database import execute, one_row

_STATE = ("last_type", "last_occurred_at")
_LOCKED = pa.schema(
    {
        "position": pa.int64(),
        "id": pa.int64(),
        "last_sequence": pa.int64(),
        "last_created_at": pa.timestamp("us", "UTC"),
    }
)
_TRANSITIONS = pa.schema([("subject_id", pa.int64()), *(SUBJECTS.field(name) for name in _STATE)])


class Locked(NamedTuple):
    """The subjects of a batch, until COMMIT."""

    subjects: pa.Table
    """`numbering.SUBJECTS`, without transition states: see `with_transitions`."""

    newest: datetime | None
    """`created_at` of the newest entry of any of them."""


def lock_subjects(connection: psycopg.Connection, names: pa.Array) -> Locked:
    """Create missing subjects and lock all. `names` are unique and in the order of their bytes."""
    if not len(names):
        none = _with_states(_LOCKED.empty_table(), _TRANSITIONS.empty_table())
        return Locked(none, None)
    literal = array_literal(pa.chunked_array([names]))
    execute(connection, "subjects/add_subjects", names=literal)
    text = one_row(connection, "subjects/lock_subjects", names=literal)["found"] or ""
    found = read_csv(text.encode(), _LOCKED).sort_by("position")
    if found["position"].to_pylist() != list(range(1, len(names) + 1)):
        raise RuntimeError(f"{len(names)} subjects were to be locked, {found.num_rows} were found")
    return Locked(
        _with_states(found, _TRANSITIONS.empty_table()), pc.max(found["last_created_at"]).as_py()
    )


def with_transitions(connection: psycopg.Connection, locked: Locked, stream: str) -> Locked:
    """Add the transition states that the locked subjects have in a stream."""
    if not locked.subjects.num_rows:
        return locked
    ids = array_literal(locked.subjects["id"])
    text = one_row(connection, "subjects/read_transitions", ids=ids, stream=stream)["found"] or ""
    found = read_csv(text.encode(), _TRANSITIONS)
    return locked._replace(subjects=_with_states(locked.subjects, found))


def _with_states(subjects: pa.Table, found: pa.Table) -> pa.Table:
    places = pc.index_in(subjects["id"], found["subject_id"].combine_chunks())
    states = [found[name].combine_chunks().take(places.combine_chunks()) for name in _STATE]
    return pa.table([subjects["id"], subjects["last_sequence"], *states], schema=SUBJECTS)


def advance_subjects(
    connection: psycopg.Connection, moved: pa.Table, stream: str, stamp: Stamp
) -> None:
    """Advance locked subjects to `numbering.Numbered.moved`.

    `stream` is the one whose transition states are advanced.
    """
    if not moved.num_rows:
        return
    execute(
        connection,
        "subjects/advance_subjects",
        stream=stream,
        ids=array_literal(moved["id"]),
        sequences=array_literal(moved["last_sequence"]),
        types=array_literal(moved["last_type"]),
        times=array_literal(moved["last_occurred_at"]),
        written_at=stamp.written_at,
    )
