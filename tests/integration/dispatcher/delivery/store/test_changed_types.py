"""An endpoint whose types are changed: what was wanted before and after comes once, in order."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.sink.contract.exits import CommandError
from tests.support.dispatch.delivery import attempts, lanes, stored
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.entries import BLOCK, RELEASE
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

CLAIMED = """
    UPDATE holdfast.lane
    SET token = gen_random_uuid(), claimed_sequence = last_sequence,
        lease_until = now() + interval '1 minute'
"""
WAITS = """
    SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE NOT granted AND datname = current_database()
"""


def change(dsn: str, *types: str, state: str = "active") -> None:
    """Pause, change the types, go on."""
    with Endpoints.connect(dsn) as store:
        store.set_endpoint_state("payouts", "paused", "test")
        store.set_endpoint("payouts", lambda row: {**row, "types": [*types]}, "test")
        store.set_endpoint_state("payouts", state, "test")


def alternate(decisions: Decisions, subject: str, pairs: int) -> None:
    """Odd sequences block, even ones release."""
    for _ in range(pairs):
        decisions.write(subject)
        decisions.write(subject, type_=RELEASE)


def test_active_endpoint_keeps_its_types(dsn: str, db: psycopg.Connection) -> None:
    add_endpoint(db, "http://127.0.0.1:9/", types=[BLOCK])
    with Endpoints.connect(dsn) as store, pytest.raises(CommandError, match="pause payouts"):
        store.set_endpoint("payouts", lambda row: {**row, "types": []}, "test")
    assert db.execute("SELECT types FROM holdfast.endpoint").fetchone() == ([BLOCK],)


@pytest.mark.parametrize("wider", [[], [BLOCK, RELEASE]])
def test_more_types_count_from_now_on(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    wider: list[str],
) -> None:
    add_endpoint(db, receiver.url, types=[BLOCK])
    alternate(decisions, "m_1", 2)
    decisions.write("m_2", "m_2", type_=RELEASE)
    drain(dsn)
    assert (receiver.sequences("m_1"), receiver.sequences("m_2")) == ([1, 3], [])
    decisions.write("m_3", "m_2", type_=RELEASE)
    change(dsn, *wider)
    drain(dsn)
    # What was not routed before the change is judged by the new types.
    assert (receiver.sequences("m_3"), receiver.sequences("m_2")) == ([1], [3])
    alternate(decisions, "m_1", 1)
    alternate(decisions, "m_2", 1)
    drain(dsn)
    assert receiver.sequences("m_1") == [1, 3, 5, 6]
    assert receiver.sequences("m_2") == [3, 4, 5]


def test_what_waits_and_is_wanted_before_and_after_is_neither_lost_nor_repeated(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, types=[BLOCK], schedule_seconds=[0, 86_400])
    receiver.script = lambda _seen: answer(500)
    decisions.write("m_1", type_=RELEASE)
    alternate(decisions, "m_1", 2)
    drain(dsn)
    assert receiver.sequences("m_1") == [2, 2]
    change(dsn)
    receiver.script = lambda _seen: answer(200)
    db.execute("UPDATE holdfast.lane SET due_at = now() WHERE due_at IS NOT NULL")
    drain(dsn)
    # The first release was never wanted; the head goes on where it was.
    assert receiver.sequences("m_1") == [2, 2, 2, 3, 4, 5]
    assert [row.number for row in attempts(db)] == [1, 2, 3, 1, 1, 1]


def test_head_that_is_wanted_no_more_leaves_its_attempts_behind(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, schedule_seconds=[0, 86_400])
    receiver.script = lambda _seen: answer(500)
    alternate(decisions, "m_1", 2)
    drain(dsn)
    change(dsn, RELEASE)
    receiver.script = lambda _seen: answer(200)
    db.execute("UPDATE holdfast.lane SET due_at = now() WHERE due_at IS NOT NULL")
    drain(dsn)
    assert receiver.sequences("m_1") == [1, 1, 2, 4]
    assert [(row.sequence, row.number) for row in attempts(db)][2:] == [(2, 1), (4, 1)]
    assert lanes(db)["m_1"].delivered == 4


def test_dropped_entries_that_were_never_wanted_stop_no_lane(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url, types=[BLOCK])
    alternate(decisions, "m_1", 2)
    decisions.write("m_2", type_=RELEASE)
    drain(dsn)
    db.execute("DELETE FROM holdfast.entry WHERE type = %s", [RELEASE])
    change(dsn)
    decisions.write("m_1", "m_2")
    report = drain(dsn)
    assert (receiver.sequences("m_1"), receiver.sequences("m_2")) == ([1, 3, 5], [2])
    assert "gaps" not in report.counts


def test_endpoint_from_the_beginning_begins_where_retention_has_left_something(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    alternate(decisions, "m_1", 3)
    db.execute("UPDATE holdfast.batch SET routed_at = now()")
    db.execute("DELETE FROM holdfast.entry WHERE sequence < 4")
    add_endpoint(db, receiver.url)
    with Endpoints.connect(dsn) as store:
        assert store.backfill("payouts") == 1
    report = drain(dsn)
    assert receiver.sequences("m_1") == [4, 5, 6]
    assert "gaps" not in report.counts


def test_claim_that_ends_while_the_types_change_keeps_them(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """It began before the endpoint was paused, so neither sees what the other has done."""
    add_endpoint(db, "http://127.0.0.1:9/", types=[BLOCK])
    alternate(decisions, "m_1", 1)
    asyncio.run(stored(dsn, _route))
    with Endpoints.connect(dsn) as store, ThreadPoolExecutor() as threads:
        store.set_endpoint_state("payouts", "paused", "test")
        with psycopg.connect(dsn) as claim:
            claim.execute(CLAIMED)
            changed = threads.submit(
                store.set_endpoint, "payouts", lambda row: {**row, "types": []}, "test"
            )
            eventually(lambda: db.execute(WAITS).fetchone() == (1,))
            assert not changed.done()
        with pytest.raises(CommandError, match="of 1 subjects are still in flight"):
            changed.result()
    assert db.execute("SELECT types FROM holdfast.endpoint").fetchone() == ([BLOCK],)


async def _route(store: PostgresStore) -> None:
    await store.route(16)
