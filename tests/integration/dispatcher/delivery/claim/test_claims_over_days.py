"""A claim begins with the days around now, and misses nothing of the days before."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_plan import ScanPlan
from holdfast.dispatcher.delivery.store.scan_ranges import FAIR_EVERY
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.claim.test_interleavings import claimed, numbers
from tests.integration.dispatcher.delivery.store.test_store import judged, wanted
from tests.support.dispatch.aging import age
from tests.support.dispatch.delivery import expire_leases, lanes, make_due, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.entries import BLOCK, RELEASE
from tests.support.job.decisions import Decisions
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.line_faults import Turns

pytestmark = pytest.mark.rest

URL = "http://127.0.0.1:1/"
DAYS = 5
SUBJECT = "SELECT id FROM holdfast.subject WHERE name = %s"
HEAD_DAYS = f"""
    SELECT extract(epoch FROM now() - head_created_at) / 86400
    FROM holdfast.lane WHERE subject_id = ({SUBJECT})
"""
each_choice = pytest.mark.parametrize("types", [[], [BLOCK]], ids=["every type", "one type"])


async def deliver(store: PostgresStore, endpoint_id: int) -> None:
    """Deliver what is due, so that the next claim knows where to look and is one message."""
    await store.route(16)
    for lane in await claimed(store, endpoint_id):
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)


async def all_of(store: PostgresStore, endpoint_id: int) -> dict[int, list[tuple[int, int]]]:
    """Claim until nothing is left; sequences and numbers by subject id, in the order of claims."""
    found: dict[int, list[tuple[int, int]]] = {}
    while more := await claimed(store, endpoint_id):
        found |= {lane.subject_id: numbers(lane) for lane in more}
    return found


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
def test_entries_of_days_ago_go_before_those_of_today(
    dsn: str, db: psycopg.Connection, decisions: Decisions, types: list[str]
) -> None:
    endpoint_id = add_endpoint(db, URL, types=types)
    decisions.write("m_0")

    async def work(store: PostgresStore) -> None:
        await deliver(store, endpoint_id)
        decisions.write("m_1", "m_1")
        await store.route(16)
        await asyncio.to_thread(age, db, DAYS)
        decisions.write("m_1", "m_2")
        await store.route(16)
        assert await all_of(store, endpoint_id) == {
            number_of(db, "m_1"): [(1, 1), (2, 1), (3, 1)],
            number_of(db, "m_2"): [(1, 1)],
        }

    asyncio.run(stored(dsn, work))


@each_choice
def test_days_of_a_backlog_are_not_looked_for_with_each_claim(
    dsn: str, db: psycopg.Connection, decisions: Decisions, types: list[str]
) -> None:
    endpoint_id = add_endpoint(db, URL, types=types)
    decisions.write("m_0")
    turns = Turns()

    async def work(store: PostgresStore) -> None:
        await deliver(store, endpoint_id)
        decisions.write(*(f"m_{n}" for n in range(1, 13)))
        await store.route(16)
        await asyncio.to_thread(age, db, DAYS)
        proxy.bend(turns)
        each = []
        for _ in range(12):
            before = turns.count
            (lane,) = (await store.claim(wanted(endpoint_id, count=1), 0)).lanes
            each.append(turns.count - before)
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        # Some may be a look at the whole, once a second.
        assert each.count(1) > len(each) / 2, each

    with FaultProxy.before_postgres(dsn) as proxy:
        asyncio.run(stored(proxy.dsn_of(dsn), work))


def test_subject_that_had_nothing_for_long_costs_no_look_at_all_days(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await deliver(store, endpoint_id)
        await asyncio.to_thread(age, db, DAYS)
        assert head_days(db, "m_1") > DAYS - 1
        decisions.write("m_1")
        await store.route(16)
        assert head_days(db, "m_1") < 1
        with Overview.connect(dsn) as operator:
            assert operator.totals()["oldest_waiting_seconds"] < 3600
        assert await all_of(store, endpoint_id) == {number_of(db, "m_1"): [(2, 1)]}

    asyncio.run(stored(dsn, work))


@pytest.mark.parametrize("pause", [0.0, 1e6], ids=["each a full scan", "none"])
@pytest.mark.parametrize("rate", [None, 1_000_000], ids=["free", "at a rate"])
def test_release_of_days_ago_is_not_kept_out_by_blocks_that_fill_each_claim(
    dsn: str, db: psycopg.Connection, decisions: Decisions, rate: int | None, pause: float
) -> None:
    endpoint_id = add_endpoint(db, URL, rate_per_second=rate)
    decisions.write("m_0")

    async def work(store: PostgresStore) -> None:
        await deliver(store, endpoint_id)
        decisions.write("m_1", type_=RELEASE)
        await store.route(16)
        await asyncio.to_thread(age, db, DAYS)
        db.execute("UPDATE holdfast.lane SET priority = 100")
        store._claimer._plan = ScanPlan(full_scan_seconds=pause)
        store._claimer._plan.know([(endpoint_id, 100)])
        decisions.write(*(f"m_{n}" for n in range(2, 4 * FAIR_EVERY)))
        await store.route(16)
        found = []
        for _ in range(2 * FAIR_EVERY + 2):
            claim = await store.claim(wanted(endpoint_id, count=1), 0)
            found += [lane.subject_id for lane in claim.lanes]
        assert number_of(db, "m_1") in found
        assert len(found) > FAIR_EVERY

    asyncio.run(stored(dsn, work))


@each_choice
@pytest.mark.parametrize("known", [True, False], ids=["lane is there", "new lane"])
def test_batch_of_days_ago_that_is_routed_last_still_goes_first(
    dsn: str, db: psycopg.Connection, decisions: Decisions, types: list[str], known: bool
) -> None:
    endpoint_id = add_endpoint(db, URL, types=types)

    async def work(store: PostgresStore) -> None:
        if known:
            decisions.write("m_1")
            await deliver(store, endpoint_id)
        decisions.write("m_1")
        await asyncio.to_thread(age, db, DAYS)
        with routed_by_another(dsn):
            decisions.write("m_1")
            assert (await store.route(16)).batches == 1
            first = 2 if known else 1
            assert lanes(db)["m_1"].last == first + 1
            expected = {number_of(db, "m_1"): [(first, 1), (first + 1, 1)]}
            assert await all_of(store, endpoint_id) == expected
        assert (await store.route(16)).batches == 1
        assert await all_of(store, endpoint_id) == {}

    asyncio.run(stored(dsn, work))


def test_few_entries_of_a_subject_that_is_new_to_the_endpoint_are_routed(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Its earlier entries are looked for, which a first try with few entries does not do."""
    endpoint_id = add_endpoint(db, URL, types=[BLOCK])
    decisions.write("m_0")

    async def work(store: PostgresStore) -> None:
        await deliver(store, endpoint_id)
        decisions.write("m_1", type_=RELEASE)
        await store.route(16)
        await asyncio.to_thread(age, db, DAYS)
        decisions.write("m_1")
        news = await store.route_and_claim(wanted(endpoint_id), 0)
        assert news is not None
        assert (news[0].batches, news[1].lanes) == (0, [])
        assert (await store.route(16)).batches == 1
        assert await all_of(store, endpoint_id) == {number_of(db, "m_1"): [(2, 1)]}

    asyncio.run(stored(dsn, work))


def test_attempts_of_days_ago_count(dsn: str, db: psycopg.Connection, decisions: Decisions) -> None:
    """Those of the head are in its lane; those of what was handed out behind it are looked for."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        for _ in range(2):
            assert await claimed(store, endpoint_id)
            expire_leases(db)
            await store.rescue(16)
        await asyncio.to_thread(age, db, DAYS)
        make_due(db)
        assert await all_of(store, endpoint_id) == {number_of(db, "m_1"): [(1, 3), (2, 3)]}

    asyncio.run(stored(dsn, work))


def test_entry_that_may_have_been_received_days_ago_is_not_sent_again(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    db.execute(
        "UPDATE holdfast.endpoint_pace SET key_window_seconds=3600, key_window_seen_at=now()"
    )
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        assert await claimed(store, endpoint_id)
        expire_leases(db)
        await store.rescue(16)
        await asyncio.to_thread(age, db, DAYS)
        make_due(db)
        (lane,) = await claimed(store, endpoint_id)
        assert [entry.forgotten for entry in lane.entries] == [True]

    asyncio.run(stored(dsn, work))
