"""What a run of the exposure job left in the database, and what the rules say it had to leave."""

from collections import Counter
from typing import Any

import psycopg

from holdfast.deploy.local.demo.reference import BatchResult
from holdfast.sink.contract.canonical import rfc3339_from_micros
from tests.support.job.jobs import micros
from tests.support.job.outbox import contents

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


def outcome(dsn: str) -> dict[str, Rows]:
    """Every row that a run left, without clocks, runs and the identity of its checkpoint."""
    with psycopg.connect(dsn, autocommit=True) as db:
        found: dict[str, Rows] = contents(db)
        found["window"] = db.execute(_WINDOWS).fetchall()
        found["late"] = db.execute(_LATE).fetchall()
    found["stream"] = [(name,) for name, _ in found["stream"]]
    found["batch"] = [(stream, *rest) for stream, _, *rest in found["batch"]]
    return found


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
