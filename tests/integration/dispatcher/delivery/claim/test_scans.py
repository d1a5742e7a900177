"""Where claims and rescues look, on a real database: nothing due is overlooked for long."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Lane, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.aging import _make
from tests.support.dispatch.delivery import attempts, expire_leases, lanes, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.entries import BLOCK
from tests.support.job.decisions import Decisions

pytestmark = pytest.mark.rest

URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (5,) * 10, OrderPolicy.STOP)


def wanted(count: int) -> Wanted:
    return Wanted({1: count}, uuid4(), 30, 8)


async def deliver(store: PostgresStore, count: int) -> list[Lane]:
    claimed = list((await store.claim(wanted(count), 0)).lanes)
    results = [
        settle(
            lane,
            [
                Attempt(
                    each.sequence, each.number, each.key, Outcome.DELIVERED, 200, 1, *[None] * 3
                )
                for each in lane.entries
            ],
            ENDPOINT,
            draw=0.5,
        )
        for lane in claimed
    ]
    await store.settle(results, repeated=False)
    return claimed


def test_lane_that_became_due_behind_the_cursor_is_found_by_a_full_scan(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, URL)
    decisions.write("m_1", "m_2")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        await deliver(store, 1)
        db.execute(
            "UPDATE holdfast.lane SET due_at = due_at - interval '1 hour' WHERE due_at IS NOT NULL"
        )
        async with asyncio.timeout(20):
            while not await deliver(store, 1):  # noqa: ASYNC110 - the database changes
                await asyncio.sleep(0.02)

    asyncio.run(stored(dsn, work))
    due = db.execute("SELECT count(*) FROM holdfast.lane WHERE due_at IS NOT NULL").fetchone()
    assert due == (0,)


def test_first_lanes_of_an_endpoint_are_claimed_at_once(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Also where a dispatcher has looked for them in vain just before."""
    add_endpoint(db, URL)

    async def work(store: PostgresStore) -> None:
        assert (await store.claim(wanted(9), 0)).lanes == []
        decisions.write("m_1", "m_2")
        await store.route(16)
        assert len((await store.claim(wanted(9), 0)).lanes) == 2

    asyncio.run(stored(dsn, work))


def test_flood_of_urgent_lanes_does_not_starve_the_others(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, URL)
    decisions.write(*(f"m_{n}" for n in range(40)))
    decisions.write("calm")
    db.execute(
        "UPDATE holdfast.entry SET priority = 1 FROM holdfast.subject s"
        " WHERE s.id = subject_id AND s.name = 'calm'"
    )

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        turns = 0
        while lanes(db)["calm"].delivered == 0:
            await deliver(store, 2)
            turns += 1
        assert 1 < turns <= 8

    asyncio.run(stored(dsn, work))


def test_urgent_lanes_that_wait_for_a_retry_are_not_walked_over_for_the_calm_ones(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, URL)
    decisions.write(*(f"m_{n}" for n in range(300)))
    decisions.write("calm")
    db.execute(
        "UPDATE holdfast.entry SET priority = 1 FROM holdfast.subject s"
        " WHERE s.id = subject_id AND s.name = 'calm'"
    )

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        db.execute("UPDATE holdfast.lane SET due_at = now() + interval '1 h' WHERE priority = 0")
        assert len(await deliver(store, 5)) == 1

    asyncio.run(stored(dsn, work))


def test_database_clock_that_was_set_back_a_day_loses_nothing(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Entries then stand a day ahead; an endpoint of some types, too, gets them now."""
    add_endpoint(db, URL)
    add_endpoint(db, URL, name="blocks", types=[BLOCK])
    decisions.write("m_1", "m_1", "m_2")
    day = timedelta(days=1)

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        for days in (1, 2):
            _make(db, "entry", datetime.now(UTC).date() + days * day)
        db.execute("UPDATE holdfast.entry SET created_at = created_at + interval '1 day'")
        for endpoint_id in (1, 2):
            claim = await store.claim(Wanted({endpoint_id: 9}, uuid4(), 30, 1), 0)
            assert claim.gaps == []
            assert len(claim.lanes) == 2
        expire_leases(db)
        assert len(await store.rescue(16)) == 4
        claim = await store.claim(wanted(9), 0)
        of_lane = {
            len(lane.entries): [each.number for each in lane.entries] for lane in claim.lanes
        }
        assert of_lane == {1: [2], 2: [2, 1]}
        assert {row.number for row in attempts(db)} == {1}

    asyncio.run(stored(dsn, work))


def test_lease_that_ran_out_before_the_last_rescue_is_found_too(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        assert await store.rescue(16) == []
        await store.claim(wanted(1), 0)
        db.execute("UPDATE holdfast.lane SET lease_until = now() - interval '1 day'")
        async with asyncio.timeout(20):
            while not await store.rescue(16):  # noqa: ASYNC110 - the database changes
                await asyncio.sleep(0.02)

    asyncio.run(stored(dsn, work))
