"""A random stream for the exposure job, the same for the same seed, and what it must lead to.

Untidy on purpose: amounts around the limits, so that holds come and go; merchants that fall silent
under a hold; repeats, laggards of all sizes, dates in the far future and lines that are no events.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast.deploy.local.demo.reference import BatchResult, Event, Reference
from holdfast.sink.contract.canonical import rfc3339_from_micros
from holdfast.spark_app.exposure.settings import Settings
from tests.support.job.jobs import POLICY, at, event, micros, put

MINUTE = 60_000_000
FILE_MINUTES = 7
SETTINGS = Settings(late_cutoff_us=16 * MINUTE)
"""A cutoff so long that some laggards still correct their window, and others are late."""

OPTIONS = ("--late-cutoff", "16m", "--key-groups", "8")

_MERCHANTS = ["m_eur", *(f"m_{n}" for n in range(12))]
_AMOUNTS = [-2_000_000, -500_000, 300_000, 900_000, 2_500_000]
_BEHIND = [0, 0, 0, 0, 1, 10, 18, 40]
_ROWS = 60
_REFUSED = {
    "malformed": b'{"event_id": "cut',
    "wrong_currency": event("w1", "12:00", 1, currency="GBP"),
    "missing_merchant": event("w2", "12:00", 1, merchant_id=None),
}
_FAR = micros(at("12:00")) + 60 * 365 * 24 * 60 * MINUTE


@dataclass
class Stream:
    """The lines of each file, and the events among them."""

    files: list[list[Event]]
    refused: list[list[str]]
    _shuffles: random.Random = field(repr=False)

    def put(self, folder: Path) -> None:
        """Write the files, to be read one a batch in this order."""
        for number in range(len(self.files)):
            self.put_one(folder, number)

    def put_one(self, folder: Path, number: int) -> None:
        """Write one of the files."""
        lines = [_line(row) for row in self.files[number]]
        lines += [_REFUSED[reason] for reason in self.refused[number]]
        self._shuffles.shuffle(lines)
        put(folder, number, lines)

    def expected(
        self, policy: Path, text: str = POLICY, pause: int | None = None
    ) -> list[BatchResult]:
        """Recompute the stream naively, a file a batch, and the batch without rows at the end.

        There is another one where a run paused before it read the file with this number.
        """
        policy.write_text(text)
        reference = Reference(policy, late_cutoff_us=SETTINGS.late_cutoff_us)
        batches = [*zip([*self.files, []], self.watermarks(), strict=True)]
        if pause is not None:
            batches.insert(pause, ([], batches[pause][1]))
        return [reference.batch(rows, watermark) for rows, watermark in batches]

    def watermarks(self) -> Iterator[int | None]:
        """W of each batch: the newest time of earlier ones less the delay, in whole ms."""
        yield None
        newest = 0
        for rows in self.files:
            plausible = (row.occurred_at_us for row in rows if not row.future_dated)
            newest = max(newest, *plausible)
            yield newest // 1000 * 1000 - SETTINGS.watermark_delay_us


def stream(seed: int, files: int, minutes: int = FILE_MINUTES) -> Stream:
    """Make a stream of so many files, with so many minutes of events each."""
    draw = random.Random(seed)  # noqa: S311 - traffic, not a secret
    made: list[list[Event]] = []
    refused: list[list[str]] = []
    for number in range(files):
        # Some merchants say nothing for a while: their holds end in windows without events.
        active = draw.sample(_MERCHANTS, 7)
        start = micros(at("12:00")) + number * minutes * MINUTE
        rows = [_event(draw, f"e{number}-{i}", active, start, minutes) for i in range(_ROWS)]
        before = [row for earlier in made[-6:] for row in earlier]
        rows += draw.sample(rows, 3) + draw.sample(before, min(len(before), 4))
        made.append(rows)
        refused.append(draw.choices(list(_REFUSED), k=draw.choice([0, 0, 1, 2])))
    return Stream(made, refused, draw)


def _event(
    draw: random.Random, event_id: str, merchants: list[str], start: int, minutes: int
) -> Event:
    merchant = draw.choice(merchants)
    moment = start + draw.randrange(minutes * MINUTE) - draw.choice(_BEHIND) * MINUTE
    ahead = draw.random() < 0.01
    return Event(
        event_id,
        merchant,
        draw.choice(["payout_submitted", "payout_failed"]),
        draw.choice(_AMOUNTS),
        "EUR" if merchant == "m_eur" else "USD",
        _FAR + moment % MINUTE if ahead else moment,
        ahead,
    )


def _line(row: Event) -> bytes:
    fields: dict[str, Any] = {
        "event_id": row.event_id,
        "merchant_id": row.merchant_id,
        "type": row.type,
        "amount_minor": row.amount_minor,
        "currency": row.currency,
        "occurred_at": rfc3339_from_micros(row.occurred_at_us),
    }
    return json.dumps(fields).encode()


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
    "quarantine": """
        SELECT reason::text, rule, detail, row FROM holdfast.quarantine ORDER BY 1, 2, 3, 4""",
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
        SELECT batch_id, reason, rule, row FROM holdfast.quarantine
        JOIN holdfast.batch USING (batch_no) ORDER BY 1, 2, 3, 4""",
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
