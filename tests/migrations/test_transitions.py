"""Revision 0024 splits the transition state of subjects by stream, and a downgrade joins it again.

Entries are written by the sink of today. A database of 0023 is made of it by the downgrade.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.migrations.upgrade import downgrade, script, upgrade
from holdfast.sink.contract.requeue import REISSUED, REQUEUED
from holdfast.sink.requeue import query_id_of, requeue, stream_of
from tests.support.dispatch.aging import OLD, age
from tests.support.dispatch.entries import BLOCK, NOON, RELEASE, WINDOW, decision
from tests.support.job.driver import Driver
from tests.support.job.outbox import contents

pytestmark = pytest.mark.rest

MakeDriver = Callable[..., Driver]

DAILY = "report.daily"
BEFORE = "SELECT name, last_type, last_occurred_at FROM holdfast.subject ORDER BY 1"
LONG = "p" * 63
ACTS_FOR = 'SELECT name, acts_for FROM holdfast.stream ORDER BY name COLLATE "C"'


def _write(dsn: str, stream: str, *rows: dict[str, Any]) -> None:
    driver = Driver(dsn, stream=stream)
    for number, row in enumerate(rows):
        driver.batch(number, row)
    driver.sink.close()


def _by_hand(dsn: str, stream: str, subject: str, window: int, type_: str) -> None:
    text = (
        f'{{"subject": "{subject}", "type": "{type_}", "key": ["by hand", "{subject}"],'
        f' "occurred_at": "{(NOON + window * WINDOW).isoformat()}", "data": {{}}}}'
    )
    [told] = requeue(dsn, stream, {1: text}, suppress_repeats=False)
    assert told.written


def _there_and_back(dsn: str) -> None:
    downgrade(dsn, "0023")
    upgrade(dsn)


def _at(window: int) -> Any:
    return NOON + window * WINDOW


def test_states_of_one_stream_are_copied_with_what_was_written_by_hand_for_it(
    dsn: str, db: psycopg.Connection
) -> None:
    _write(dsn, LONG, decision("m_1", 1), decision("m_2", 2))
    _by_hand(dsn, LONG, "m_1", 5, RELEASE)
    before = contents(db)["transition"]
    downgrade(dsn, "0023")
    assert db.execute(BEFORE).fetchall() == [("m_1", RELEASE, _at(5)), ("m_2", BLOCK, _at(2))]
    upgrade(dsn)
    assert contents(db)["transition"] == before
    assert before == [(LONG, "m_1", RELEASE, _at(5)), (LONG, "m_2", BLOCK, _at(2))]


def test_states_of_several_streams_are_computed_from_their_own_entries(
    dsn: str, db: psycopg.Connection
) -> None:
    _write(dsn, "payouts", decision("m_1", 1), decision("m_2", 1))
    _write(dsn, "reports", decision("m_1", 2, DAILY))
    _by_hand(dsn, "payouts", "m_2", 4, RELEASE)
    before = contents(db)["transition"]
    assert len(before) == 3
    downgrade(dsn, "0023")
    # Where the subject is shared, the newest entry gives the type.
    assert db.execute(BEFORE).fetchall() == [("m_1", DAILY, _at(2)), ("m_2", RELEASE, _at(4))]
    upgrade(dsn)
    assert contents(db)["transition"] == before
    _there_and_back(dsn)
    assert contents(db)["transition"] == before


def test_stream_of_which_nothing_is_stored_keeps_the_shared_state(
    dsn: str, db: psycopg.Connection
) -> None:
    _write(dsn, "payouts", decision("m_1", 1), decision("m_2", 1))
    age(db, OLD)
    _write(dsn, "reports", decision("m_1", 2, DAILY), decision("m_3", 1, DAILY))
    downgrade(dsn, "0023")
    for day in db.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'holdfast.entry'::regclass"
        " AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') < now() - interval '9 days'"
    ).fetchall():
        db.execute(f"DROP TABLE {day[0]}".encode())
    upgrade(dsn)
    assert contents(db)["transition"] == [
        ("payouts", "m_1", DAILY, _at(2)),
        ("payouts", "m_2", BLOCK, _at(1)),
        ("reports", "m_1", DAILY, _at(2)),
        # Not to be told apart from a stream whose entries were dropped.
        ("reports", "m_2", BLOCK, _at(1)),
        ("reports", "m_3", DAILY, _at(1)),
    ]


@pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])
@pytest.mark.parametrize("base", ["a", LONG], ids=["short", "shortened"])
def test_a_jobs_own_stream_is_not_taken_for_one_that_is_written_by_hand(
    dsn: str, db: psycopg.Connection, base: str, suffix: str
) -> None:
    own = (stream_of(base, suffix), uuid4())
    # It has been there since before its name was reserved.
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES (%s, %s)", own)
    job = Driver(dsn, stream=own[0], query_id=own[1])
    job.batch(0, decision("m_1", 1))
    job.sink.close()
    _write(dsn, base, decision("m_2", 1))
    before = contents(db)["transition"]
    _there_and_back(dsn)
    assert db.execute(ACTS_FOR).fetchall() == sorted([(base, None), (own[0], None)])
    assert contents(db)["transition"] == before


@pytest.mark.parametrize("printed", [False, True])
def test_streams_written_by_hand_act_for_the_same_stream_after_an_upgrade(
    dsn: str, db: psycopg.Connection, printed: bool
) -> None:
    """Of names of each length, and what was written by hand of what was written by hand."""
    suffixes = [
        (first, second) for first in (REQUEUED, REISSUED) for second in (REQUEUED, REISSUED)
    ]
    for base in ("p" * length for length in range(1, 64)):
        add = "INSERT INTO holdfast.stream (name, query_id, acts_for) VALUES (%s, %s, %s)"
        db.execute(add, [base, uuid4(), None])
        for first in (REQUEUED, REISSUED):
            hand = stream_of(base, first)
            db.execute(add, [hand, query_id_of(base, first), base])
    for first, second in suffixes:
        hand = stream_of("payouts", first)
        if second == REQUEUED:
            db.execute(add, [hand, query_id_of("payouts", first), "payouts"])
        db.execute(add, [stream_of(hand, second), query_id_of(hand, second), "payouts"])
    db.execute(add, ["payouts", uuid4(), None])
    before = db.execute(ACTS_FOR).fetchall()
    assert len(before) == 63 * 3 + 7
    downgrade(dsn, "0023")
    if printed:
        db.execute(script(dsn).encode())
    else:
        upgrade(dsn)
    assert db.execute(ACTS_FOR).fetchall() == before


def test_batches_of_before_are_not_said_to_keep_what_they_suppressed(
    dsn: str, db: psycopg.Connection
) -> None:
    _write(dsn, "payouts", decision("m_1", 1), decision("m_1", 2))
    _there_and_back(dsn)
    _write(dsn, "reports", decision("m_1", 3))
    rows = db.execute("SELECT stream, keeps_suppressed FROM holdfast.batch ORDER BY batch_no")
    assert rows.fetchall() == [("payouts", False), ("payouts", False), ("reports", True)]


def test_a_downgrade_keeps_rows_of_the_future_in_the_quarantine(
    dsn: str, db: psycopg.Connection
) -> None:
    far = NOON + timedelta(days=365 * 100)
    _write(dsn, "payouts", decision("m_1", 1, occurred_at=far))
    downgrade(dsn, "0023")
    reasons = db.execute("SELECT reason::text FROM holdfast.quarantine").fetchall()
    assert reasons == [("bad_data",)]


@pytest.mark.parametrize("days", [0, 2])
def test_a_state_ahead_of_its_time_is_marked(dsn: str, db: psycopg.Connection, days: int) -> None:
    """As rows that an older sink took: today's sink has to be told to."""
    now = db.execute("SELECT now()").fetchone()[0]  # type: ignore[index]
    driver = Driver(dsn, future_tolerance=timedelta(days=9))
    driver.batch(0, decision("m_1", 1, occurred_at=now + timedelta(days=days)))
    driver.sink.close()
    _there_and_back(dsn)
    assert db.execute("SELECT ahead FROM holdfast.transition").fetchall() == [(days > 1,)]
