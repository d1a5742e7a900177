"""Keys, numbers, names and times in the database, for the measured requests."""

from dataclasses import dataclass
from datetime import datetime
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
REPLAYS = """
    SELECT DISTINCT ON (state) state::text, id, created_at FROM holdfast.replay
    ORDER BY state, item_count DESC, created_at DESC
"""


@dataclass(frozen=True)
class Known:
    """What addresses and arguments are made of; all of it is text."""

    key: str
    early_key: str
    subject: str
    stopped: str
    stream: str
    batch: str
    batch_no: str
    diverged: str
    dead: str
    dead_resolved: str
    dead_middle: str
    quarantined: str
    suppressed: str
    suppressed_middle: str
    quarantine_middle: str
    action_middle: str
    proposal: str
    planned: str
    applying: str
    applied: str
    replay_middle: str
    since: str
    until: str
    attempts_middle: str
    """A place in the middle of all attempts."""


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
        key=Key(late["key"]).text,
        early_key=Key(early["key"]).text,
        subject=late["subject"],
        stopped=found["stopped"],
        stream=late["stream"],
        batch=str(late["batch_id"]),
        batch_no=str(late["batch_no"]),
        diverged=str(found["diverged"]),
        dead=str(found["dead"]),
        dead_resolved=str(found["dead_resolved"]),
        dead_middle=str(found["dead_middle"]),
        quarantined=str(found["quarantined"]),
        suppressed=Key(found["suppressed"]).text,
        suppressed_middle=f"{int(late['batch_no']) // 2}.0.0.0",
        quarantine_middle=str(found["quarantine_middle"]),
        action_middle=str(found["action_middle"]),
        proposal=str(found["proposal"]),
        planned=str(replays["planned"]["id"]),
        applying=str(replays["applying"]["id"]),
        applied=str(replays["applied"]["id"]),
        replay_middle=rfc3339(replays["applied"]["created_at"]),
        since=rfc3339(early["written_at"]),
        until=rfc3339(late["written_at"]),
        attempts_middle=f"{_micros(middle)}.0.0.0.0",
    )


def _row(connection: psycopg.Connection[dict[str, Any]], query: str, **given: int) -> Any:
    row = connection.execute(query.encode(), given or None).fetchone()
    if row is None:
        raise LookupError("the database is not filled")
    return row


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
