"""Keys, numbers, names and times in the database, for the measured requests."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import psycopg

from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.key import Key

ONE = """
    SELECT e.key, s.name AS subject, b.batch_id, b.batch_no, b.stream, b.written_at
    FROM holdfast.batch b
    JOIN LATERAL (SELECT * FROM holdfast.entry e WHERE e.batch_no = b.batch_no
        AND e.created_at = b.written_at ORDER BY subject_id DESC LIMIT 1) e ON true
    JOIN holdfast.subject s ON s.id = e.subject_id
    WHERE b.batch_no = (SELECT 1 + max(batch_no) * %(share)s / 100 FROM holdfast.batch)
"""
NUMBERS = """
    SELECT (SELECT max(id) FROM holdfast.dead_letter WHERE resolution IS NULL) AS dead,
        (SELECT max(id) FROM holdfast.dead_letter WHERE resolution IS NOT NULL) AS dead_resolved,
        (SELECT (min(id) + max(id)) / 2 FROM holdfast.dead_letter) AS dead_middle,
        (SELECT max(id) FROM holdfast.quarantine WHERE resolution IS NULL) AS quarantined,
        (SELECT (min(id) + max(id)) / 2 FROM holdfast.quarantine) AS quarantine_middle,
        (SELECT key FROM holdfast.suppressed ORDER BY batch_no DESC LIMIT 1) AS suppressed,
        (SELECT (min(id) + max(id)) / 2 FROM holdfast.operator_action) AS action_middle,
        (SELECT id FROM holdfast.proposal ORDER BY created_at LIMIT 1) AS proposal,
        (SELECT b.batch_id FROM holdfast.divergence v JOIN holdfast.batch b USING (batch_no)
            ORDER BY v.id DESC LIMIT 1) AS diverged,
        (SELECT s.name FROM holdfast.dead_letter d JOIN holdfast.subject s ON s.id = d.subject_id
            WHERE d.resolution IS NULL LIMIT 1) AS stopped,
        (SELECT min(finished_at) FROM holdfast.attempt) AS first_attempt,
        (SELECT max(finished_at) FROM holdfast.attempt) AS last_attempt
"""
NAMES = (
    *("diverged", "dead", "dead_resolved", "dead_middle", "quarantined", "quarantine_middle"),
    *("action_middle", "proposal", "stopped"),
)
"""Of NUMBERS, those that are used as they are."""

REPLAYS = """
    SELECT DISTINCT ON (state) state::text, id, created_at FROM holdfast.replay
    ORDER BY state, item_count DESC, created_at DESC
"""


Known = SimpleNamespace
"""What addresses and arguments are made of; all of it is text."""


def known(dsn: str) -> Known:
    """Find one of everything; raises LookupError in a database without troubles."""
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        late = _row(connection, ONE, share=90)
        early = _row(connection, ONE, share=10)
        found = _row(connection, NUMBERS)
        replays = {row["state"]: row for row in connection.execute(REPLAYS)}
    if not {"planned", "applying", "applied"} <= replays.keys() or None in found.values():
        raise LookupError("the database lacks some of the troubles that the queries are about")
    middle = found["first_attempt"] + (found["last_attempt"] - found["first_attempt"]) / 2
    return Known(
        nobody="nobody_at_all",
        rare_type="payout_hold.release",
        entries_middle=f"{int(late['batch_no']) // 2}.{10**17}.1",
        key=Key(late["key"]).text,
        early_key=Key(early["key"]).text,
        subject=late["subject"],
        stream=late["stream"],
        batch=str(late["batch_id"]),
        batch_no=str(late["batch_no"]),
        **{name: str(found[name]) for name in NAMES},
        suppressed=Key(found["suppressed"]).text,
        suppressed_middle=f"{int(late['batch_no']) // 2}.0.0.0",
        **{state: str(replays[state]["id"]) for state in ("planned", "applying", "applied")},
        replay_middle=rfc3339(replays["applied"]["created_at"]),
        since=rfc3339(early["written_at"]),
        until=rfc3339(late["written_at"]),
        # A place in the middle of all attempts.
        attempts_middle=f"{_micros(middle)}.0.0.0.0",
    )


def _row(connection: psycopg.Connection[dict[str, Any]], query: str, **given: int) -> Any:
    row = connection.execute(query.encode(), given or None).fetchone()
    if row is None:
        raise LookupError("the database is not filled")
    return row


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
