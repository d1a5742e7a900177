"""Revision 0024 splits the transition state of subjects by stream, and a downgrade joins it again.

Entries are written by the sink of today. A database of 0023 is made of it by the downgrade.
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.migrations.upgrade import downgrade, script, upgrade
from holdfast.sink.contract.requeue import REISSUED, REQUEUED
from holdfast.sink.requeue import query_id_of, requeue, stream_of
from tests.support.dispatch.delivery import OLD, age
from tests.support.dispatch.sender import BLOCK, NOON, RELEASE, WINDOW, decision
from tests.support.job.driver import Driver
from tests.support.job.job_outcome import contents
from tests.support.world import World

pytestmark = pytest.mark.rest


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


def test_states_of_one_stream_are_copied_with_manual_entries(world: World) -> None:
    _write(world.dsn, LONG, decision("m_1", 1), decision("m_2", 2))
    _by_hand(world.dsn, LONG, "m_1", 5, RELEASE)
    before = contents(world.db)["transition"]
    downgrade(world.dsn, "0023")
    assert world.db.execute(BEFORE).fetchall() == [("m_1", RELEASE, _at(5)), ("m_2", BLOCK, _at(2))]
    upgrade(world.dsn)
    assert contents(world.db)["transition"] == before
    assert before == [(LONG, "m_1", RELEASE, _at(5)), (LONG, "m_2", BLOCK, _at(2))]


def test_states_of_several_streams_are_computed_from_their_own_entries(world: World) -> None:
    _write(world.dsn, "payouts", decision("m_1", 1), decision("m_2", 1))
    _write(world.dsn, "reports", decision("m_1", 2, DAILY))
    _by_hand(world.dsn, "payouts", "m_2", 4, RELEASE)
    before = contents(world.db)["transition"]
    assert len(before) == 3
    downgrade(world.dsn, "0023")
    # Where the subject is shared, the newest entry gives the type.
    assert world.db.execute(BEFORE).fetchall() == [("m_1", DAILY, _at(2)), ("m_2", RELEASE, _at(4))]
    upgrade(world.dsn)
    assert contents(world.db)["transition"] == before
    _there_and_back(world.dsn)
    assert contents(world.db)["transition"] == before


def test_stream_without_entries_keeps_the_shared_state(world: World) -> None:
    _write(world.dsn, "payouts", decision("m_1", 1), decision("m_2", 1))
    age(world.db, OLD)
    _write(world.dsn, "reports", decision("m_1", 2, DAILY), decision("m_3", 1, DAILY))
    downgrade(world.dsn, "0023")
    for day in world.db.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'holdfast.entry'::regclass"
        " AND to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') < now() - interval '9 days'"
    ).fetchall():
        world.db.execute(f"DROP TABLE {day[0]}".encode())
    upgrade(world.dsn)
    assert contents(world.db)["transition"] == [
        ("payouts", "m_1", DAILY, _at(2)),
        ("payouts", "m_2", BLOCK, _at(1)),
        ("reports", "m_1", DAILY, _at(2)),
        # Not to be told apart from a stream whose entries were dropped.
        ("reports", "m_2", BLOCK, _at(1)),
        ("reports", "m_3", DAILY, _at(1)),
    ]


@pytest.mark.parametrize("suffix", [REQUEUED, REISSUED])
@pytest.mark.parametrize("base", ["a", LONG], ids=["short", "shortened"])
def test_stream_of_a_job_is_not_one_by_hand(world: World, base: str, suffix: str) -> None:
    own = (stream_of(base, suffix), uuid4())
    # It has been there since before its name was reserved.
    world.db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES (%s, %s)", own)
    job = Driver(world.dsn, stream=own[0], query_id=own[1])
    job.batch(0, decision("m_1", 1))
    job.sink.close()
    _write(world.dsn, base, decision("m_2", 1))
    before = contents(world.db)["transition"]
    _there_and_back(world.dsn)
    assert world.db.execute(ACTS_FOR).fetchall() == sorted([(base, None), (own[0], None)])
    assert contents(world.db)["transition"] == before


@pytest.mark.parametrize("printed", [False, True])
def test_streams_by_hand_act_as_before_after_upgrade(world: World, printed: bool) -> None:
    """Of names of each length, and what was written by hand of what was written by hand."""
    suffixes = [
        (first, second) for first in (REQUEUED, REISSUED) for second in (REQUEUED, REISSUED)
    ]
    for base in ("p" * length for length in range(1, 64)):
        add = "INSERT INTO holdfast.stream (name, query_id, acts_for) VALUES (%s, %s, %s)"
        world.db.execute(add, [base, uuid4(), None])
        for first in (REQUEUED, REISSUED):
            hand = stream_of(base, first)
            world.db.execute(add, [hand, query_id_of(base, first), base])
    for first, second in suffixes:
        hand = stream_of("payouts", first)
        if second == REQUEUED:
            world.db.execute(add, [hand, query_id_of("payouts", first), "payouts"])
        world.db.execute(add, [stream_of(hand, second), query_id_of(hand, second), "payouts"])
    world.db.execute(add, ["payouts", uuid4(), None])
    before = world.db.execute(ACTS_FOR).fetchall()
    assert len(before) == 63 * 3 + 7
    downgrade(world.dsn, "0023")
    if printed:
        world.db.execute(script(world.dsn).encode())
    else:
        upgrade(world.dsn)
    assert world.db.execute(ACTS_FOR).fetchall() == before


def test_earlier_batches_are_not_marked_as_keeping_suppressed_entries(world: World) -> None:
    _write(world.dsn, "payouts", decision("m_1", 1), decision("m_1", 2))
    _there_and_back(world.dsn)
    _write(world.dsn, "reports", decision("m_1", 3))
    rows = world.db.execute("SELECT stream, keeps_suppressed FROM holdfast.batch ORDER BY batch_no")
    assert rows.fetchall() == [("payouts", False), ("payouts", False), ("reports", True)]


def test_a_downgrade_keeps_rows_of_the_future_in_the_quarantine(world: World) -> None:
    far = NOON + timedelta(days=365 * 100)
    _write(world.dsn, "payouts", decision("m_1", 1, occurred_at=far))
    downgrade(world.dsn, "0023")
    reasons = world.db.execute("SELECT reason::text FROM holdfast.quarantine").fetchall()
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
