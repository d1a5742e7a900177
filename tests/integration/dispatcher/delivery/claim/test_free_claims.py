"""Endpoints that nothing limits are claimed from in one message, which leaves the others alone."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.values import Lane, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.support.dispatch.delivery import lanes, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.line_faults import Turns

URL = "http://127.0.0.1:1/"
LIMITS = {
    "breaker": """
        UPDATE holdfast.endpoint_pace
        SET breaker = 'open', breaker_since = now(), breaker_until = now() + interval '1 hour'
        WHERE endpoint_id = %s
    """,
    "hold": """
        UPDATE holdfast.endpoint_pace
        SET held_until = now() + interval '1 hour', held_by = 'answered 429'
        WHERE endpoint_id = %s
    """,
    "rate": "UPDATE holdfast.endpoint SET rate_per_second = 115 WHERE id = %s",
}


async def claimed(store: PostgresStore, *endpoints: int) -> Sequence[Lane]:
    claim = await store.claim(Wanted(dict.fromkeys(endpoints, 100), uuid4(), 30, 8), 0)
    return claim.lanes


@pytest.mark.parametrize(("limit", "later"), [("breaker", 0), ("hold", 0), ("rate", 5)])
def test_limit_that_came_since_the_last_claim_holds(
    dsn: str, db: psycopg.Connection, decisions: Decisions, limit: str, later: int
) -> None:
    free, limited = add_endpoint(db, URL, name="free"), add_endpoint(db, URL, name="limited")
    decisions.write("m_0")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        before = await claimed(store, free, limited)
        await store.settle([judged(lane, Outcome.DELIVERED) for lane in before], repeated=False)
        decisions.write(*(f"m_{n}" for n in range(1, 9)))
        await store.route(16)
        db.execute(LIMITS[limit].encode(), [limited])
        for leased in ({free: 8}, {limited: later} if later else {}):
            found = await claimed(store, free, limited)
            assert Counter(lane.endpoint_id for lane in found) == leased

    asyncio.run(stored(dsn, work))
    rows = db.execute("SELECT endpoint_id, count(token) FROM holdfast.lane GROUP BY 1").fetchall()
    assert dict(rows) == {free: 8, limited: later}


def test_decision_waits_for_the_database_three_times_before_it_is_sent(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Two for routing and one for its claim, or two for both: each is a message and its answer."""
    endpoint_id = add_endpoint(db, URL)
    turns = Turns()

    async def work(store: PostgresStore) -> None:
        for _ in range(2):  # what a connection does for the first time takes longer
            decisions.write("m_1")
            await store.route(16)
            for lane in await claimed(store, endpoint_id):
                await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        decisions.write("m_1")
        proxy.bend(turns)
        await store.route(16)
        routed = turns.count
        assert len(await claimed(store, endpoint_id)) == 1
        assert (routed, turns.count - routed) == (2, 1)
        decisions.write("m_2")
        before = turns.count
        wanted = Wanted({endpoint_id: 100}, uuid4(), 30, 8)
        assert await store.route_and_claim(wanted, 0) is not None
        assert turns.count - before == 2

    with FaultProxy.before_postgres(dsn) as proxy:
        asyncio.run(stored(proxy.dsn_of(dsn), work))
    assert lanes(db)["m_1"].delivered == 2
