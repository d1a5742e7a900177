"""What the sink left in a database, in a form that two databases can be compared by."""

from typing import Any

import psycopg

_QUERIES = {
    "stream": "SELECT name, query_id FROM holdfast.stream ORDER BY 1",
    "batch": """
        SELECT stream, query_id, batch_id, row_count, entry_count, duplicate_count, differing_count,
            suppressed_count, quarantined_count, digest
        FROM holdfast.batch ORDER BY 1, 2, 3""",
    "entry": """
        SELECT name, sequence, key, type, occurred_at, priority, batch_id,
            convert_from(body, 'UTF8')
        FROM holdfast.entry
        JOIN holdfast.subject ON subject.id = entry.subject_id
        JOIN holdfast.batch USING (batch_no) ORDER BY 1, 2""",
    "entry_key": """
        SELECT key, content, batch_id FROM holdfast.entry_key
        JOIN holdfast.batch USING (batch_no) ORDER BY 1""",
    "subject": """
        SELECT name, last_sequence, (
            SELECT last_type FROM holdfast.transition WHERE subject_id = id
            ORDER BY updated_at DESC LIMIT 1)
        FROM holdfast.subject ORDER BY 1""",
    "transition": """
        SELECT stream, name, last_type, last_occurred_at FROM holdfast.transition
        JOIN holdfast.subject ON subject.id = subject_id ORDER BY 1, 2""",
    "suppressed": """
        SELECT batch_id, name, key, type, occurred_at, priority, cause::text, traceparent,
            key_parts, data
        FROM holdfast.suppressed
        JOIN holdfast.subject ON subject.id = subject_id
        JOIN holdfast.batch USING (batch_no) ORDER BY 1, 2, 3""",
    "quarantine": """
        SELECT batch_id, reason, row FROM holdfast.quarantine
        JOIN holdfast.batch USING (batch_no) ORDER BY 1, 2, 3""",
}


def contents(db: psycopg.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of the sink, without clocks, runs and numbers that differ from try to try."""
    return {name: db.execute(query).fetchall() for name, query in _QUERIES.items()}


def sequences(db: psycopg.Connection, subject: str) -> list[int]:
    """The sequence numbers of a subject's entries, in the order of their creation."""
    rows = db.execute(
        """
        SELECT sequence FROM holdfast.entry
        JOIN holdfast.subject ON subject.id = entry.subject_id
        WHERE name = %s ORDER BY created_at, sequence""",
        [subject],
    )
    return [sequence for (sequence,) in rows]
