"""`FakeOutbox` beside the real sink on a real Postgres: random batches, the same of everything."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast.sink import (
    BatchInput,
    OutboxSink,
    QuarantineLimit,
    ReplayDiverged,
    Replayed,
    TooManyRefused,
    Written,
)
from holdfast.sink.errors import Divergence
from holdfast.sink.rows.batch import prepare
from holdfast.sink.session import Identity
from holdfast.testing import FakeOutbox
from tests.support.examples import examples
from tests.support.job.driver import PATIENT

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
ROWS = pa.schema(
    {
        "subject": pa.string(),
        "type": pa.string(),
        "key": pa.list_(pa.string()),
        "occurred_at": pa.timestamp("us", "UTC"),
        "data": pa.struct({"minor": pa.int64()}),
        "priority": pa.int16(),
        "rejected": pa.string(),
    }
)
TABLES = "stream, subject, transition, entry_key, batch, entry, suppressed, quarantine, divergence"

LATER = "SELECT 1 FROM holdfast.batch WHERE stream = %s AND query_id = %s AND batch_id > %s"

Row = dict[str, Any]

FAULTS: list[Row] = [
    {"subject": ""},
    {"type": "no type"},
    {"key": []},
    {"priority": -1},
    {"occurred_at": datetime(9998, 1, 1, tzinfo=UTC)},
    {"occurred_at": datetime.now(UTC) + timedelta(hours=36)},
    {"rejected": "no_such_order"},
    {"rejected": "No rule"},
]

sound = st.fixed_dictionaries(
    {
        "subject": st.sampled_from(["m_1", "m_2"]),
        "type": st.sampled_from(["hold.block", "hold.release"]),
        "key": st.integers(0, 9).map(lambda number: ["k/v1", str(number)]),
        "occurred_at": st.integers(0, 5).map(lambda minutes: NOON + timedelta(minutes=minutes)),
        "data": st.fixed_dictionaries({"minor": st.sampled_from([0, 0, 0, 1])}),
        "priority": st.integers(0, 1),
    }
)
rows = st.builds(Row.__or__, sound, st.sampled_from([{}] * 15 + FAULTS))
batches = st.lists(rows, min_size=1, max_size=8)
policies = st.fixed_dictionaries(
    {
        "suppress_repeats": st.booleans(),
        "quarantine_limit": st.sampled_from([None, None, QuarantineLimit(rows=2)]),
        "future_tolerance": st.sampled_from([timedelta(days=1), timedelta(days=36_500)]),
    }
)
steps = st.tuples(
    st.sampled_from(["write", "replay", "change", "change", "differ", "accept", "accept", "adopt"]),
    st.integers(0, 1),  # the stream
    st.integers(0, 5),  # which of its batches
    batches,
)
"""What cannot be done is a write."""


@dataclass
class Stream:
    """One stream of both outboxes, and what was handed over as each of its batches."""

    dsn: str
    outbox: FakeOutbox
    name: str
    policy: dict[str, Any]
    query_id: UUID = field(default_factory=uuid4)
    run_id: UUID = field(default_factory=uuid4)
    handed: list[list[Row]] = field(default_factory=list)
    differing: dict[int, list[Row]] = field(default_factory=dict)
    """The latest replay of a batch that differed."""

    def __post_init__(self) -> None:
        self.real = OutboxSink(self.dsn, stream=self.name, timeouts=PATIENT, **self.policy)
        self.fake = self.outbox.sink(self.name, **self.policy)

    def hand_over(self, batch_id: int, batch: list[Row]) -> Any:
        """Give both the batch, compare what they answer, and return it."""
        table = pa.Table.from_pylist(batch, ROWS)
        identity = Identity(self.query_id, self.run_id, batch_id)
        real = _answer(lambda: self.real.apply(table, identity))
        assert _answer(lambda: self.fake(table, batch_id)) == real
        if isinstance(real, Divergence):
            self.differing[batch_id] = batch
        return real

    def adopt(self, db: psycopg.Connection) -> None:
        """Begin again with a new checkpoint."""
        self.query_id, self.run_id = uuid4(), uuid4()
        self.handed, self.differing = [], {}
        db.execute(
            "UPDATE holdfast.stream SET query_id = %s WHERE name = %s", [self.query_id, self.name]
        )
        self.outbox.adopt(self.name)

    def accept(self, db: psycopg.Connection, batch_id: int) -> None:
        """Accept the latest replay that differed, and hand it over twice.

        Where the query wrote a later batch, it is refused, as by `holdfast batch accept`.
        """
        if db.execute(LATER, [self.name, self.query_id, batch_id]).fetchone():
            with pytest.raises(ValueError, match="not the newest"):
                self.outbox.accept(self.name, batch_id)
            return
        batch = self.differing[batch_id]
        digest = prepare(BatchInput(pa.Table.from_pylist(batch, ROWS))).digest
        self.outbox.accept(self.name, batch_id)
        db.execute(
            """
            UPDATE holdfast.divergence AS d SET accepted_at = now(), accepted_by = 'test'
            FROM holdfast.batch AS b
            WHERE b.batch_no = d.batch_no AND stream = %s AND query_id = %s AND batch_id = %s
                AND d.digest = %s""",
            [self.name, self.query_id, batch_id, digest],
        )
        for _ in range(2):
            self.hand_over(batch_id, batch)


def _answer(call: Callable[[], Written | Replayed]) -> Any:
    try:
        outcome = call()
    except ReplayDiverged as error:
        return Divergence(
            **{each.name: getattr(error.divergence, each.name) for each in fields(Divergence)}
        )
    except TooManyRefused as error:
        return str(error)
    return type(outcome), outcome.stream, outcome.batch_id, outcome.counts


def _in_postgres(db: psycopg.Connection) -> tuple[list[tuple[Any, ...]], ...]:
    """Return entries, suppressed decisions and quarantined rows, each in one order."""
    queries = (
        """
        SELECT stream, batch_id, name, sequence, type, occurred_at, priority, body
        FROM holdfast.entry JOIN holdfast.batch USING (batch_no)
        JOIN holdfast.subject ON subject.id = subject_id""",
        """
        SELECT stream, batch_id, name, type, key_parts::jsonb, occurred_at, priority,
            cause::text, data::jsonb
        FROM holdfast.suppressed JOIN holdfast.batch USING (batch_no)
        JOIN holdfast.subject ON subject.id = subject_id""",
        """
        SELECT stream, batch_id, reason::text, rule, row
        FROM holdfast.quarantine JOIN holdfast.batch USING (batch_no)""",
    )
    return tuple(sorted(db.execute(query).fetchall(), key=repr) for query in queries)


def _in_memory(outbox: FakeOutbox) -> tuple[list[tuple[Any, ...]], ...]:
    """As `_in_postgres`."""
    entries = [
        (*_of(each), each.subject, each.sequence, each.type, *_when(each), each.body)
        for each in outbox.entries
    ]
    suppressed = [
        (*_of(each), each.subject, each.type, list(each.key), *_when(each), each.cause, each.data)
        for each in outbox.suppressed
    ]
    quarantined = [
        (*_of(each), each.reason.value, each.rule, each.row) for each in outbox.quarantined
    ]
    return tuple(sorted(each, key=repr) for each in (entries, suppressed, quarantined))


def _of(row: Any) -> tuple[str, int]:
    return row.stream, row.batch_id


def _when(row: Any) -> tuple[datetime, int]:
    return row.occurred_at, row.priority


def _take(step: tuple[Any, ...], stream: Stream, db: psycopg.Connection) -> None:
    """Take one step in both outboxes."""
    match step:
        case "replay", _, place, _ if stream.handed:
            batch_id = place % len(stream.handed)
            stream.hand_over(batch_id, list(reversed(stream.handed[batch_id])))
        case "change", _, place, batch if stream.handed:
            batch_id = place % len(stream.handed)
            stream.hand_over(batch_id, [*stream.handed[batch_id][1:], *batch])
        case "differ", _, place, _ if stream.differing:
            batch_id = list(stream.differing)[place % len(stream.differing)]
            stream.hand_over(batch_id, stream.differing[batch_id])
        case "accept", _, place, _ if stream.differing:
            batch_ids = sorted(stream.differing, reverse=True)  # the newest one most often
            stream.accept(db, batch_ids[place % len(batch_ids) if place > 3 else 0])
        case "adopt", _, 0, _ if stream.handed:
            stream.adopt(db)
        case _, _, _, batch:
            if not isinstance(stream.hand_over(len(stream.handed), batch), str):
                stream.handed.append(batch)


@settings(max_examples=examples(60), phases=[Phase.generate])
@given(taken=st.lists(steps, min_size=8, max_size=14), chosen=st.tuples(policies, policies))
def _same(
    dsn: str, db: psycopg.Connection, taken: list[tuple[Any, ...]], chosen: tuple[Any, ...]
) -> None:
    db.execute(f"TRUNCATE {TABLES} RESTART IDENTITY CASCADE")
    outbox = FakeOutbox()
    streams = [Stream(dsn, outbox, f"s_{n}", policy) for n, policy in enumerate(chosen)]
    try:
        for step in taken:
            _take(step, streams[step[1]], db)
    finally:
        for each in streams:
            each.real.close()
    assert _in_memory(outbox) == _in_postgres(db)


def test_fake_outbox_decides_as_the_sink_does(dsn: str, db: psycopg.Connection) -> None:
    db.execute("SET search_path = holdfast")
    _same(dsn, db)
