"""Two streams that decide about the same subjects at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import psycopg

from sink import Written
from tests.support.dispatch.entries import BLOCK, decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import sequences

MakeDriver = Callable[..., Driver]

SUBJECTS = [f"m_{n:03}" for n in range(40)]
BATCHES = 12


def test_sequences_have_no_gap_and_never_go_back_in_time(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    def drive(name: str) -> list[Written]:
        spark = driver(stream=name, suppress_repeats=False)
        # Opposite orders of arrival: locks must not be taken in them.
        subjects = SUBJECTS if name == "one" else SUBJECTS[::-1]
        outcomes = []
        for batch_id in range(BATCHES):
            rows = [decision(s, batch_id, BLOCK, key=[name, s, str(batch_id)]) for s in subjects]
            outcomes.append(spark.batch(batch_id, *rows))
        assert all(isinstance(outcome, Written) for outcome in outcomes)
        return [outcome for outcome in outcomes if isinstance(outcome, Written)]

    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(drive, ["one", "two"])

    assert sum(outcome.counts.entries for outcome in one + two) == 2 * BATCHES * len(SUBJECTS)
    for subject in SUBJECTS:
        # `sequences` orders by created_at, so this is both: no gap, and time follows sequence.
        assert sequences(db, subject) == list(range(1, 2 * BATCHES + 1))
    moments = sorted((o.batch_no, o.written_at) for o in one + two)
    assert all(earlier[1] < later[1] for earlier, later in pairwise(moments))
    last = db.execute("SELECT DISTINCT last_sequence FROM holdfast.subject").fetchall()
    assert last == [(2 * BATCHES,)]


def test_key_that_two_streams_bring_at_once_is_written_once(
    driver: MakeDriver, db: psycopg.Connection
) -> None:
    def drive(name: str) -> int:
        # Each stream files the same keys under subjects of its own, so only the keys collide.
        rows = [decision(f"{name}_{n}", key=["shared", str(n)]) for n in range(200)]
        outcome = driver(stream=name).batch(0, *rows[:: 1 if name == "one" else -1])
        assert outcome.counts.entries + outcome.counts.duplicates == 200
        return outcome.counts.entries

    with ThreadPoolExecutor(2) as threads:
        written = sum(threads.map(drive, ["one", "two"]))
    assert written == 200
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (200,)
    assert db.execute("SELECT count(*) FROM holdfast.entry_key").fetchone() == (200,)
