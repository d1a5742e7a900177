"""The subjects of a batch: locked before their entries are numbered, moved on after it."""

from datetime import datetime
from typing import NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from sink.content import Stamp
from sink.copy_format import read_csv
from sink.database import execute, one_row
from sink.literals import array_literal
from sink.numbering import SUBJECTS

_LOCKED = pa.schema(
    [
        pa.field("position", pa.int64()),
        *SUBJECTS,
        pa.field("last_created_at", pa.timestamp("us", "UTC")),
    ]
)


class Locked(NamedTuple):
    """The subjects of a batch, until COMMIT."""

    subjects: pa.Table
    """`numbering.SUBJECTS`."""

    newest: datetime | None
    """When the newest entry of any of them was created."""


def lock_subjects(connection: psycopg.Connection, names: pa.Array) -> Locked:
    """Lock subjects, new ones made first. `names` differ and are in the order of their bytes."""
    literal = array_literal(pa.chunked_array([names]))
    execute(connection, "add_subjects", names=literal)
    text = one_row(connection, "lock_subjects", names=literal)["found"] or ""
    found = read_csv(text.encode(), _LOCKED).sort_by("position")
    if found["position"].to_pylist() != list(range(1, len(names) + 1)):
        raise RuntimeError(f"{len(names)} subjects were to be locked, {found.num_rows} were found")
    return Locked(found.select(SUBJECTS.names), pc.max(found["last_created_at"]).as_py())


def advance_subjects(connection: psycopg.Connection, moved: pa.Table, stamp: Stamp) -> None:
    """Move locked subjects to where `numbering.Numbered.moved` says they are."""
    execute(
        connection,
        "advance_subjects",
        ids=array_literal(moved["id"]),
        sequences=array_literal(moved["last_sequence"]),
        types=array_literal(moved["last_type"]),
        times=array_literal(moved["last_occurred_at"]),
        written_at=stamp.written_at,
    )
