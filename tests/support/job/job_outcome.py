"""What a run of the exposure job left in the database, and what the rules say it had to leave."""

from collections import Counter
from typing import Any

import psycopg

from holdfast.deploy.local.demo.reference import BatchResult
from holdfast.sink.contract.canonical import rfc3339_from_micros
from tests.support.job.jobs import micros

Rows = list[tuple[Any, ...]]

_WINDOWS = """
    SELECT merchant_id, window_end, window_start, revision, exposure_minor, currency, policy_version
    FROM holdfast.exposure_window ORDER BY 1, 2"""
_LATE = """
    SELECT reason::text, event_id, merchant_id, type, amount_minor, currency, occurred_at, watermark
    FROM holdfast.late_event ORDER BY 1, 2, 3, 4, 5, 6, 7, 8"""
_DECISIONS = """
    SELECT name, type, convert_from(body, 'UTF8')::jsonb -> 'data'
    FROM holdfast.entry JOIN holdfast.subject ON subject.id = entry.subject_id
    ORDER BY name, sequence"""


_LASTING = {
    "entries": """
        SELECT name, sequence, key, type, occurred_at, priority, convert_from(body, 'UTF8')
        FROM holdfast.entry JOIN holdfast.subject ON subject.id = subject_id ORDER BY 1, 2""",
    "windows": """
        SELECT merchant_id, window_end, revision, exposure_minor, policy_version
        FROM holdfast.exposure_window ORDER BY 1, 2""",
    "keys": "SELECT key, content FROM holdfast.entry_key ORDER BY 1",
    "transitions": """
        SELECT name, last_sequence, last_type FROM holdfast.subject
        JOIN holdfast.transition ON subject_id = id ORDER BY 1""",
    "late": """
        SELECT reason::text, event_id, merchant_id, amount_minor, occurred_at, watermark
        FROM holdfast.late_event ORDER BY 1, 2, 3, 4, 5, 6""",
    "quarantine": "SELECT reason::text, detail, row FROM holdfast.quarantine ORDER BY 1, 2, 3",
}


def lasting(dsn: str, *names: str) -> dict[str, Rows]:
    """What a stream has led to, whichever batches and checkpoints did it: all of it, or these."""
    with psycopg.connect(dsn) as db:
        return {name: db.execute(_LASTING[name]).fetchall() for name in names or _LASTING}


def ledger(dsn: str) -> Rows:
    """The batches in the order of their writing: query, batch, differing keys and digest."""
    with psycopg.connect(dsn) as db:
        return db.execute(
            "SELECT query_id, batch_id, differing_count, digest"
            " FROM holdfast.batch ORDER BY batch_no"
        ).fetchall()


def decided(db: psycopg.Connection, merchant: str | None = None) -> Rows:
    """Merchant, type and time of each decision, in the order of a merchant's."""
    return db.execute(
        "SELECT name, type, occurred_at FROM holdfast.entry"
        " JOIN holdfast.subject ON subject.id = subject_id"
        " WHERE name = coalesce(%s, name) ORDER BY name, sequence",
        [merchant],
    ).fetchall()


def outcome(dsn: str) -> dict[str, Rows]:
    """Every row that a run left, without clocks, runs and the identity of its checkpoint."""
    with psycopg.connect(dsn, autocommit=True) as db:
        tables: dict[str, Rows] = contents(db)
        tables["window"] = db.execute(_WINDOWS).fetchall()
        tables["late"] = db.execute(_LATE).fetchall()
    tables["stream"] = [(name,) for name, _ in tables["stream"]]
    tables["batch"] = [(stream, *rest) for stream, _, *rest in tables["batch"]]
    return tables


def published(dsn: str) -> tuple[Rows, Rows, Counter[tuple[Any, ...]]]:
    """Decisions in the order of their merchant, windows and late events, as `required` has them."""
    with psycopg.connect(dsn, autocommit=True) as db:
        decisions = db.execute(_DECISIONS).fetchall()
        windows = db.execute(_WINDOWS).fetchall()
        late = db.execute(_LATE).fetchall()
    return (
        decisions,
        [(merchant, micros(end), micros(start), *rest) for merchant, end, start, *rest in windows],
        Counter(
            (*row, micros(occurred), None if watermark is None else micros(watermark))
            for *row, occurred, watermark in late
        ),
    )


def required(batches: list[BatchResult]) -> tuple[Rows, Rows, Counter[tuple[Any, ...]]]:
    """What the reference's results look like in the database."""
    decisions = [
        (each.merchant_id, f"payout_hold.{each.action}", _data(each._asdict()))
        for batch in batches
        for each in batch.decisions
    ]
    windows = {
        (each.merchant_id, each.window_end): (
            each.merchant_id,
            each.window_end,
            each.window_start,
            each.revision,
            each.exposure_minor,
            each.currency,
            each.policy_version,
        )
        for batch in batches
        for each in batch.windows
    }
    return (
        sorted(decisions, key=lambda decision: decision[0]),
        [window for _, window in sorted(windows.items())],
        Counter(tuple(late) for batch in batches for late in batch.late),
    )


def _data(decision: dict[str, Any]) -> dict[str, Any]:
    del decision["ordinal"]
    for name in ("window_start", "window_end"):
        decision[name] = rfc3339_from_micros(decision[name])
    return decision


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
