"""Where claims and rescues look, on a real database: no day and nothing due is overlooked."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.values import Attempt, ClaimRequest, Lane
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_plan import FAIR_EVERY, ScanPlan
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.integration.dispatcher.delivery.claim.test_interleavings import claimed, numbers
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.integration.dispatcher.delivery.store.test_store import wanted as day_wanted
from tests.support.dispatch.delivery import _make, age, stored
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.servers.fault_proxy import FaultProxy, Turns
from tests.support.world import World

pytestmark = pytest.mark.rest


URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (5,) * 10, OrderPolicy.STOP)


def wanted(count: int) -> ClaimRequest:
    return ClaimRequest({1: count}, uuid4(), 30, 8)


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


async def test_full_scan_finds_lane_behind_the_cursor(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", "m_2")
    await deliver(store, 1)
    world.db.execute(
        "UPDATE holdfast.lane SET due_at = due_at - interval '1 hour' WHERE due_at IS NOT NULL"
    )
    async with asyncio.timeout(20):
        while not await deliver(store, 1):  # noqa: ASYNC110 - the database changes
            await asyncio.sleep(0.02)
    due = world.db.execute("SELECT count(*) FROM holdfast.lane WHERE due_at IS NOT NULL").fetchone()
    assert due == (0,)


async def test_first_lanes_are_claimed_at_once(world: World, store: PostgresStore) -> None:
    """Also where a dispatcher has looked for them in vain just before."""
    world.add_endpoint(URL)
    assert (await store.claim(wanted(9), 0)).lanes == []
    world.write("m_1", "m_2")
    await store.route(16)
    assert len((await store.claim(wanted(9), 0)).lanes) == 2


async def calm_behind(world: World, store: PostgresStore, urgent: int) -> None:
    """Route so many urgent subjects, and one of less urgency behind them."""
    world.add_endpoint(URL)
    world.write(*(f"m_{n}" for n in range(urgent)))
    world.write("calm")
    world.db.execute(
        "UPDATE holdfast.entry SET priority = 1 FROM holdfast.subject s"
        " WHERE s.id = subject_id AND s.name = 'calm'"
    )
    await store.route(16)


async def test_urgent_flood_does_not_starve_others(world: World, store: PostgresStore) -> None:
    await calm_behind(world, store, 40)
    turns = 0
    while world.lanes()["calm"].delivered == 0:
        await deliver(store, 2)
        turns += 1
    assert 1 < turns <= 8


async def test_waiting_urgent_lanes_are_not_walked_over(world: World, store: PostgresStore) -> None:
    await calm_behind(world, store, 300)
    world.db.execute("UPDATE holdfast.lane SET due_at = now() + interval '1 h' WHERE priority = 0")
    assert len(await deliver(store, 5)) == 1


async def test_clock_set_back_a_day_loses_nothing(world: World, store: PostgresStore) -> None:
    """Entries then stand a day ahead; an endpoint of some types, too, gets them now."""
    world.add_endpoint(URL)
    world.add_endpoint(URL, name="blocks", types=[BLOCK])
    world.write("m_1", "m_1", "m_2")
    day = timedelta(days=1)
    await store.route(16)
    for days in (1, 2):
        _make(world.db, "entry", datetime.now(UTC).date() + days * day)
    world.db.execute("UPDATE holdfast.entry SET created_at = created_at + interval '1 day'")
    for endpoint_id in (1, 2):
        claim = await store.claim(ClaimRequest({endpoint_id: 9}, uuid4(), 30, 1), 0)
        assert claim.gaps == []
        assert len(claim.lanes) == 2
    world.expire_leases()
    assert len(await store.rescue(16)) == 4
    claim = await store.claim(wanted(9), 0)
    of_lane = {len(lane.entries): [each.number for each in lane.entries] for lane in claim.lanes}
    assert of_lane == {1: [2], 2: [2, 1]}
    assert {row.number for row in world.attempts()} == {1}


async def test_lease_over_before_last_rescue_is_found(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1")
    assert await store.rescue(16) == []
    await store.claim(wanted(1), 0)
    world.db.execute("UPDATE holdfast.lane SET lease_until = now() - interval '1 day'")
    async with asyncio.timeout(20):
        while not await store.rescue(16):  # noqa: ASYNC110 - the database changes
            await asyncio.sleep(0.02)


DAYS = 5
SUBJECT = "SELECT id FROM holdfast.subject WHERE name = %s"
HEAD_DAYS = f"""
    SELECT extract(epoch FROM now() - head_created_at) / 86400
    FROM holdfast.lane WHERE subject_id = ({SUBJECT})
"""
each_choice = pytest.mark.parametrize("types", [[], [BLOCK]], ids=["every type", "one type"])


async def day_deliver(store: PostgresStore, endpoint_id: int) -> None:
    """Deliver what is due, so that the next claim knows where to look and is one message."""
    await store.route(16)
    for lane in await claimed(store, endpoint_id):
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)


async def all_of(store: PostgresStore, endpoint_id: int) -> dict[int, list[tuple[int, int]]]:
    """Claim until nothing is left; sequences and numbers by subject id, in the order of claims."""
    results: dict[int, list[tuple[int, int]]] = {}
    while more := await claimed(store, endpoint_id):
        results |= {lane.subject_id: numbers(lane) for lane in more}
    return results


@contextmanager
def routed_by_another(dsn: str) -> Iterator[None]:
    """Hold all batches that are not routed, as a dispatcher that is routing them."""
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM holdfast.batch WHERE routed_at IS NULL FOR NO KEY UPDATE")
        yield
        other.rollback()


def head_days(db: psycopg.Connection, subject: str) -> float:
    """How long ago the head that a lane knows of was written."""
    row = db.execute(HEAD_DAYS.encode(), [subject]).fetchone()
    assert row
    return float(row[0])


def number_of(db: psycopg.Connection, subject: str) -> int:
    row = db.execute(SUBJECT.encode(), [subject]).fetchone()
    assert row
    return int(row[0])


@each_choice
async def test_entries_of_days_ago_go_before_those_of_today(
    world: World, store: PostgresStore, types: list[str]
) -> None:
    endpoint_id = world.add_endpoint(URL, types=types)
    world.write("m_0")
    await day_deliver(store, endpoint_id)
    world.write("m_1", "m_1")
    await store.route(16)
    await asyncio.to_thread(age, world.db, DAYS)
    world.write("m_1", "m_2")
    await store.route(16)
    assert await all_of(store, endpoint_id) == {
        number_of(world.db, "m_1"): [(1, 1), (2, 1), (3, 1)],
        number_of(world.db, "m_2"): [(1, 1)],
    }


@each_choice
def test_days_of_a_backlog_are_not_read_by_each_claim(world: World, types: list[str]) -> None:
    endpoint_id = world.add_endpoint(URL, types=types)
    world.write("m_0")
    turns = Turns()

    async def work(store: PostgresStore) -> None:
        await day_deliver(store, endpoint_id)
        world.write(*(f"m_{n}" for n in range(1, 13)))
        await store.route(16)
        await asyncio.to_thread(age, world.db, DAYS)
        proxy.bend(turns)
        each = []
        for _ in range(12):
            before = turns.count
            (lane,) = (await store.claim(day_wanted(endpoint_id, count=1), 0)).lanes
            each.append(turns.count - before)
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        # Some may be a look at the whole, once a second.
        assert each.count(1) > len(each) / 2, each

    with FaultProxy.before_postgres(world.dsn) as proxy:
        asyncio.run(stored(proxy.dsn_of(world.dsn), work))


async def test_long_idle_subject_costs_no_look_at_days(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1")
    await day_deliver(store, endpoint_id)
    await asyncio.to_thread(age, world.db, DAYS)
    assert head_days(world.db, "m_1") > DAYS - 1
    world.write("m_1")
    await store.route(16)
    assert head_days(world.db, "m_1") < 1
    with Overview.connect(world.dsn) as operator:
        assert operator.totals()["oldest_waiting_seconds"] < 3600
    assert await all_of(store, endpoint_id) == {number_of(world.db, "m_1"): [(2, 1)]}


@pytest.mark.parametrize("pause", [0.0, 1e6], ids=["each a full scan", "none"])
@pytest.mark.parametrize("rate", [None, 1_000_000], ids=["free", "at a rate"])
async def test_old_release_is_claimed_beside_many_blocks(
    world: World, store: PostgresStore, rate: int | None, pause: float
) -> None:
    endpoint_id = world.add_endpoint(URL, rate_per_second=rate)
    world.write("m_0")
    await day_deliver(store, endpoint_id)
    world.write("m_1", type_=RELEASE)
    await store.route(16)
    await asyncio.to_thread(age, world.db, DAYS)
    world.db.execute("UPDATE holdfast.lane SET priority = 100")
    store._claimer._plan = ScanPlan(full_scan_seconds=pause)
    store._claimer._plan.know([(endpoint_id, 100)])
    world.write(*(f"m_{n}" for n in range(2, 4 * FAIR_EVERY)))
    await store.route(16)
    results = []
    for _ in range(2 * FAIR_EVERY + 2):
        claim = await store.claim(day_wanted(endpoint_id, count=1), 0)
        results += [lane.subject_id for lane in claim.lanes]
    assert number_of(world.db, "m_1") in results
    assert len(results) > FAIR_EVERY


@each_choice
@pytest.mark.parametrize("known", [True, False], ids=["lane is there", "new lane"])
async def test_old_batch_routed_last_still_goes_first(
    world: World, store: PostgresStore, types: list[str], known: bool
) -> None:
    endpoint_id = world.add_endpoint(URL, types=types)
    if known:
        world.write("m_1")
        await day_deliver(store, endpoint_id)
    world.write("m_1")
    await asyncio.to_thread(age, world.db, DAYS)
    with routed_by_another(world.dsn):
        world.write("m_1")
        assert (await store.route(16)).batches == 1
        first = 2 if known else 1
        assert world.lanes()["m_1"].last == first + 1
        expected = {number_of(world.db, "m_1"): [(first, 1), (first + 1, 1)]}
        assert await all_of(store, endpoint_id) == expected
    assert (await store.route(16)).batches == 1
    assert await all_of(store, endpoint_id) == {}


async def test_entries_of_a_new_subject_are_routed(world: World, store: PostgresStore) -> None:
    """Its earlier entries are looked for, which a first try with few entries does not do."""
    endpoint_id = world.add_endpoint(URL, types=[BLOCK])
    world.write("m_0")
    await day_deliver(store, endpoint_id)
    world.write("m_1", type_=RELEASE)
    await store.route(16)
    await asyncio.to_thread(age, world.db, DAYS)
    world.write("m_1")
    news = await store.route_and_claim(day_wanted(endpoint_id), 0)
    assert news is not None
    assert (news[0].batches, news[1].lanes) == (0, [])
    assert (await store.route(16)).batches == 1
    assert await all_of(store, endpoint_id) == {number_of(world.db, "m_1"): [(2, 1)]}


async def test_attempts_of_days_ago_count(world: World, store: PostgresStore) -> None:
    """Those of the head are in its lane; those of what was handed out behind it are looked for."""
    endpoint_id = await world.routed(store, "m_1", "m_1")
    for _ in range(2):
        assert await claimed(store, endpoint_id)
        world.expire_leases()
        await store.rescue(16)
    await asyncio.to_thread(age, world.db, DAYS)
    world.make_due()
    assert await all_of(store, endpoint_id) == {number_of(world.db, "m_1"): [(1, 3), (2, 3)]}


async def test_entry_received_days_ago_is_not_repeated(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.db.execute(
        "UPDATE holdfast.endpoint_pace SET key_window_seconds=3600, key_window_seen_at=now()"
    )
    world.write("m_1")
    await store.route(16)
    assert await claimed(store, endpoint_id)
    world.expire_leases()
    await store.rescue(16)
    await asyncio.to_thread(age, world.db, DAYS)
    world.make_due()
    (lane,) = await claimed(store, endpoint_id)
    assert [entry.forgotten for entry in lane.entries] == [True]
