"""What a comparison reads of this side: each entry once, whatever its attempts, by index alone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor

from holdfast.dispatcher.operators.common.statements import statement
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.receipts import store as receipts
from holdfast.dispatcher.operators.receipts.rules import SentEntry
from holdfast.dispatcher.operators.receipts.store import SentEntries
from tests.support.dispatch.delivery import _make
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.world import World

pytestmark = pytest.mark.rest


DAY = timedelta(days=1)
RECEIPT = '{"key":"hf_0","outcome":"applied","applied_at":"T","receipt":"v1,"}'
FILL = """
    WITH subjects AS (
        INSERT INTO holdfast.subject (name) SELECT 'm_' || n FROM generate_series(1, 2000) n
        RETURNING id
    ), entries AS (
        INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at,
            priority, batch_no, body)
        SELECT id, n, now() - n * interval '4 hours', gen_random_uuid(), 't', now(), 0, 1, '{}'
        FROM subjects, generate_series(1, 5) n
        RETURNING *
    )
    INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
        outcome, status)
    SELECT 1, subject_id, sequence, 1, created_at, gen_random_uuid(), 'delivered', 200 FROM entries
"""


@pytest.fixture
def store(dsn: str, db: psycopg.Connection) -> Iterator[SentEntries]:
    """What was sent to the endpoint 1."""
    add_endpoint(db, "http://127.0.0.1:1/")
    with SentEntries.connect(dsn) as store:
        yield store


def add_entry(db: psycopg.Connection, subject: str, created_at: datetime) -> int:
    """Add a subject with one entry; returns the subject's number."""
    _make(db, "entry", created_at.date())
    row = db.execute(
        """
        WITH s AS (INSERT INTO holdfast.subject (name) VALUES (%s) RETURNING id)
        INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at,
            priority, batch_no, body)
        SELECT id, 1, %s, gen_random_uuid(), 't', now(), 0, 1, '{}' FROM s
        RETURNING subject_id""",
        [subject, created_at],
    ).fetchone()
    assert row
    return int(row[0])


def add_attempt(
    db: psycopg.Connection, subject_id: int, number: int, at: datetime, outcome: str, **other: Any
) -> None:
    _make(db, "attempt", at.date())
    db.execute(
        """
        INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at,
            token, outcome, status, receipt)
        VALUES (1, %s, %s, %s, %s, gen_random_uuid(), %s, 200, %s)""",
        [subject_id, other.get("sequence", 1), number, at, outcome, other.get("receipt")],
    )


def read(store: SentEntries, **changes: Any) -> list[SentEntry]:
    values = {"since": When(back=DAY), "until": When(), "subject": None, **changes}
    wanted = store.range_(1, **values, hashed=True)
    return [row for _, page in store.pages(wanted) for row in page]


def test_each_entry_comes_once_with_the_attempt_that_counts(
    world: World, store: SentEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "PAGE", 2)
    now = datetime.now(UTC)
    early, late = now - timedelta(hours=20), now - timedelta(hours=1)
    retried = add_entry(world.db, "retried", early)
    add_attempt(world.db, retried, 1, early, "failed")
    add_attempt(world.db, retried, 2, late, "delivered", receipt=RECEIPT)
    again = add_entry(world.db, "sent again", early)
    add_attempt(world.db, again, 1, early, "delivered", receipt=RECEIPT)
    add_attempt(world.db, again, 2, late, "unknown")
    lost = add_entry(world.db, "lost", early)
    add_attempt(world.db, lost, 1, early, "unknown")
    add_attempt(world.db, lost, 2, late, "failed")
    before = add_entry(world.db, "delivered before", now - 3 * DAY)
    add_attempt(world.db, before, 1, now - 2 * DAY, "delivered")
    add_attempt(world.db, before, 2, late, "failed")
    outside = add_entry(world.db, "outside", now - 3 * DAY)
    add_attempt(world.db, outside, 1, now - 2 * DAY, "delivered")
    results = [(each.subject, each.delivered, each.last, bool(each.proof)) for each in read(store)]
    assert results == [
        ("retried", True, "delivered", True),
        ("sent again", True, "delivered", True),
        ("lost", False, "failed", False),
    ]
    assert [each.subject for each in read(store, subject="lost")] == ["lost"]
    week = read(store, since=When(back=7 * DAY))
    assert {each.subject for each in week} >= {"outside", "delivered before"}


@pytest.mark.parametrize(
    ("rows", "explained"),
    [
        ([(1, 60, "delivered", "stale")], False),
        ([(1, 60, "delivered", "stale"), (2, 120, "delivered", "applied")], False),
        ([(2, 60, "delivered", "applied"), (1, 120, "delivered", "stale")], True),
        ([(2, 60, "delivered", None), (1, 120, "delivered", "stale")], True),
        ([(2, 60, "unknown", None), (1, 120, "delivered", "stale")], True),
        ([(2, 60, "rejected", None), (1, 120, "delivered", "stale")], False),
        ([(2, 60, "delivered", "stale"), (1, 120, "delivered", "stale")], False),
        ([(1, 60, "delivered", "applied"), (1, 120, "delivered", "stale")], True),
        (
            [
                (1, 60, "delivered", "stale"),
                (2, 90, "delivered", "applied"),
                (1, 120, "delivered", "stale"),
            ],
            False,
        ),
    ],
    ids=[
        *("alone", "before a later one", "behind a later one", "behind one without a receipt"),
        *("behind an unknown one", "behind a rejected one", "behind a stale one"),
        *("applied once", "and redelivered behind a later one"),
    ],
)
def test_stale_is_explained_only_by_earlier_deliveries(
    world: World, store: SentEntries, rows: list[tuple[Any, ...]], explained: bool
) -> None:
    begin = datetime.now(UTC) - timedelta(hours=1)
    subject_id = add_entry(world.db, "m_482", begin)
    for number, (sequence, seconds, outcome, receipt_outcome) in enumerate(rows, 1):
        receipt = (
            None if receipt_outcome is None else RECEIPT.replace("applied", receipt_outcome, 1)
        )
        at = begin + timedelta(seconds=seconds)
        add_attempt(world.db, subject_id, number, at, outcome, sequence=sequence, receipt=receipt)
    wanted = store.range_(1, When(back=DAY), When(), None, hashed=False)
    overtaken = store.overtaken(wanted, [("m_482", 1)])
    assert overtaken == ({("m_482", 1)} if explained else set())


def test_entry_that_waited_for_weeks_is_found(store: SentEntries, db: psycopg.Connection) -> None:
    now = datetime.now(UTC)
    waited = add_entry(db, "waited", now - 20 * DAY)
    add_attempt(db, waited, 31, now - timedelta(hours=1), "delivered")
    [row] = read(store)
    assert row.key
    assert row.body_sha256


def test_pages_are_read_by_index_in_the_order_of_the_attempts(
    world: World, store: SentEntries
) -> None:
    world.db.execute(FILL)
    world.db.execute("VACUUM ANALYZE holdfast.attempt, holdfast.entry, holdfast.subject")
    wanted = store.range_(1, When(back=DAY), When(), None, hashed=True)
    values = {**receipts._bound(wanted), "after_subject": 100, "after_sequence": 3, "limit": 500}
    world.db.execute(statement("receipts/settings"))
    plan = _plan(world.db, "receipts/page", values)
    assert "Merge Append" in plan
    assert "Incremental Sort" in plan, "sorts the attempts of an entry, and nothing else"
    for index in ("attempt_", "entry_", "pk_subject"):
        assert f"Index Scan using {index}" in plan, plan
    assert "Seq Scan" not in plan
    assert "pk_entry_key" in _plan(world.db, "receipts/strangers", {"keys": ["hf_" + "0" * 32]})
    stale = {"endpoint_id": 1, "subjects": ["m_7", "m_8"], "sequences": [1, 2]}
    assert "Seq Scan" not in _plan(world.db, "receipts/overtaken", stale)
    # Few lanes are planned by their endpoint, many by their leases: both are indexes of the lane.
    assert "Seq Scan" not in _plan(world.db, "receipts/in_flight", values)
    assert len(read(store)) == 2000 * 5


def _plan(db: psycopg.Connection, name: str, values: dict[str, Any]) -> str:
    plan_lines = ClientCursor(db).execute(b"EXPLAIN " + statement(name), values).fetchall()
    return "\n".join(line for (line,) in plan_lines)
