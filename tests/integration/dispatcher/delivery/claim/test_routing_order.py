"""Batches that are routed in another order than that in which they were written.

Two dispatchers may have two batches of a subject in hand, and either may end first.
"""

import asyncio

import psycopg

from holdfast.dispatcher.delivery.rules.values import Routed
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.store.test_store import judged, wanted
from tests.support.dispatch.delivery import lanes, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions

URL = "http://127.0.0.1:1/"


def test_lane_begins_at_the_first_entry_in_whatever_order_batches_are_routed(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, URL)
    first = decisions.write("m_1")
    decisions.write("m_1", "m_1")

    async def work(store: PostgresStore) -> None:
        with psycopg.connect(dsn) as other:
            other.execute(
                "SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE", [first.batch_no]
            )
            assert await store.route(16) == Routed(1, 1)
            assert lanes(db)["m_1"][:2] == (0, 3)
        assert await store.route(16) == Routed(1, 0)
        assert await store.route(16) == Routed(0, 0)
        assert lanes(db)["m_1"][:2] == (0, 3)

    asyncio.run(stored(dsn, work))


def test_batch_that_is_routed_late_makes_its_lane_as_urgent_as_its_entries(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Two dispatchers may route two batches of a subject in any order."""
    add_endpoint(db, "http://127.0.0.1:1/")
    decisions.write("m_1")
    decisions.write("m_1")
    db.execute("UPDATE holdfast.entry SET priority = 10 * sequence")
    db.execute("""
        UPDATE holdfast.batch SET routed_at = now()
        WHERE batch_no = (SELECT min(batch_no) FROM holdfast.batch)
    """)
    asyncio.run(stored(dsn, _route))
    db.execute("""
        UPDATE holdfast.batch SET routed_at = NULL
        WHERE batch_no = (SELECT min(batch_no) FROM holdfast.batch)
    """)
    asyncio.run(stored(dsn, _route))
    query = "SELECT priority, delivered_sequence, last_sequence FROM holdfast.lane"
    assert db.execute(query).fetchall() == [(10, 0, 2)]


def test_batch_that_is_routed_after_its_entries_were_delivered_changes_nothing(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Another dispatcher routes a later batch and delivers both before the first is through."""
    endpoint_id = add_endpoint(db, URL)
    first = decisions.write("m_1")
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        with psycopg.connect(dsn) as other:
            other.execute(
                "SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE", [first.batch_no]
            )
            assert await store.route(16) == Routed(1, 1)
            (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
            both = judged(lane, Outcome.DELIVERED, Outcome.DELIVERED)
            await store.settle([both], repeated=False)
        assert await store.route(16) == Routed(1, 0)
        assert await store.route(16) == Routed(0, 0)
        assert lanes(db)["m_1"] == (2, 2, 0, LaneState.IDLE, None)

    asyncio.run(stored(dsn, work))


async def _route(store: PostgresStore) -> None:
    await store.route(10)
