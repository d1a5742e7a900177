"""A lane is there once, whoever makes it, although the index of lanes has its turn in it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast.dispatcher.delivery.store
from holdfast.dispatcher.delivery.rules.values import Routed
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_ranges import END
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.shared.states import LaneState
from holdfast.migrations.upgrade import downgrade, upgrade
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.claim.test_interleavings import claimed
from tests.integration.dispatcher.delivery.claim.test_lane_versions import URL, WAITING, waits
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.support.dispatch.delivery import attempts, lanes, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

SQL = Path(holdfast.dispatcher.delivery.store.__file__).parent / "sql"
ONE = """
    INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
        head_created_at)
    VALUES (1, 1, 0, 1, 0, now())
"""
LANE = ONE + ", (1, 2, 0, 1, 0, now()), (1, 1, 0, 1, 0, now())"
PLACES = "SELECT endpoint_id, subject_id FROM holdfast.{} ORDER BY 1, 2"


def route_one(other: psycopg.Connection) -> None:
    """Route the oldest batch as another dispatcher, without the COMMIT."""

    def run(name: str, given: dict[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        return other.execute((SQL / f"{name}.sql").read_bytes(), given)

    run("connection/session", {"plans": "auto"})
    [(number, _, at, *_)] = run("routing/batch_take", {"batches": 1}).fetchall()
    given = {"batch_nos": [number], "first_written_at": at, "last_written_at": at, "past": END}
    run("routing/lane_route", given)


async def route_beside_another(
    store: PostgresStore,
    dsn: str,
    db: psycopg.Connection,
    end: Callable[[psycopg.Connection], None] = psycopg.Connection.commit,
) -> Routed:
    """Route while another dispatcher has the oldest batch in hand, who ends when this one waits."""
    with psycopg.connect(dsn) as other:
        await asyncio.to_thread(route_one, other)
        routing = asyncio.create_task(store.route(16))
        await waits(db)
        assert "m_1" not in lanes(db)
        end(other)
        return await routing


async def route_all(store: PostgresStore) -> None:
    await store.route(16)


def places(db: psycopg.Connection, table: str) -> list[tuple[Any, ...]]:
    return db.execute(PLACES.format(table).encode()).fetchall()


@pytest.mark.parametrize("end", [psycopg.Connection.commit, psycopg.Connection.rollback])
def test_two_dispatchers_that_make_a_lane_at_once_leave_one_with_both_entries(
    end: Callable[[psycopg.Connection], None],
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        assert await route_beside_another(store, dsn, db, end) == Routed(1, 1)
        assert lanes(db)["m_1"] == (0, 2, 0, LaneState.DUE, None)
        await store.route(16)
        assert lanes(db)["m_1"] == (0, 2, 0, LaneState.DUE, None)
        for _ in range(2):
            (lane,) = await claimed(store, endpoint_id, entries=1)
            assert await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)

    asyncio.run(stored(dsn, work))
    assert sorted(row[:3] for row in attempts(db)) == [("m_1", 1, 1), ("m_1", 2, 1)]
    assert places(db, "lane") == places(db, "lane_key") == [(endpoint_id, 1)]


def test_lane_that_is_inserted_again_is_left_as_it_is(db: psycopg.Connection) -> None:
    add_endpoint(db, URL)
    assert db.execute(LANE).rowcount == 2
    db.execute("UPDATE holdfast.lane SET delivered_sequence = 1, turn = turn + 1")
    assert db.execute(LANE).rowcount == 0
    assert places(db, "lane") == places(db, "lane_key") == [(1, 1), (1, 2)]


def test_lane_that_was_deleted_may_begin_again(db: psycopg.Connection) -> None:
    add_endpoint(db, URL)
    db.execute(LANE)
    db.execute("DELETE FROM holdfast.lane WHERE subject_id = 1")
    assert places(db, "lane") == places(db, "lane_key") == [(1, 2)]
    assert db.execute(LANE).rowcount == 1
    db.execute("TRUNCATE holdfast.lane")
    assert places(db, "lane_key") == []
    db.execute(LANE)
    db.execute("TRUNCATE holdfast.lane, holdfast.lane_key")
    assert places(db, "lane_key") == []
    assert db.execute(LANE).rowcount == 2


def test_key_without_a_lane_does_not_keep_it_from_beginning(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """As after a restore of one table before the other; two dispatchers may meet it at once."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")
    decisions.write("m_1", "m_2")
    db.execute("INSERT INTO holdfast.lane_key SELECT 1, id FROM holdfast.subject")

    async def work(store: PostgresStore) -> None:
        assert await route_beside_another(store, dsn, db) == Routed(1, 2)

    asyncio.run(stored(dsn, work))
    assert {name: row[:2] for name, row in lanes(db).items()} == {"m_1": (0, 2), "m_2": (0, 1)}
    assert places(db, "lane") == places(db, "lane_key") == [(endpoint_id, 1), (endpoint_id, 2)]


def test_lane_that_is_made_while_the_upgrade_waits_gets_its_key(
    dsn: str, db: psycopg.Connection
) -> None:
    add_endpoint(db, URL)
    downgrade(dsn, "0021")
    with psycopg.connect(dsn) as router, ThreadPoolExecutor(1) as pool:
        router.execute(ONE)
        upgrading = pool.submit(upgrade, dsn)
        eventually(lambda: db.execute(WAITING).fetchone() == (1,))
        router.commit()
        upgrading.result()
    assert places(db, "lane") == places(db, "lane_key") == [(1, 1)]


def test_backfill_and_routing_at_once_wait_for_each_other_in_one_order(
    dsn: str, db: psycopg.Connection, decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing has the lane of m_1 and wants to make that of m_2, which the backfill has made."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")
    asyncio.run(stored(dsn, route_all))
    decisions.write("m_1", "m_2")
    with Endpoints.connect(dsn) as operator, ThreadPoolExecutor(1) as pool:
        run, routing = operator._run, []

        def watched(name: str, given: Row | None = None) -> psycopg.Cursor[Row]:
            done = run(name, given)
            if name == "endpoints/backfill_add":
                routing.append(pool.submit(asyncio.run, stored(dsn, route_all)))
                eventually(lambda: db.execute(WAITING).fetchone() == (1,))
            return done

        monkeypatch.setattr(operator, "_run", watched)
        operator.backfill("payouts")
        routing[0].result()
    assert {name: row[:2] for name, row in lanes(db).items()} == {"m_1": (0, 2), "m_2": (0, 1)}
    assert places(db, "lane") == places(db, "lane_key") == [(endpoint_id, 1), (endpoint_id, 2)]
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert db.execute(deadlocks).fetchone() == (0,)


def test_lanes_survive_the_upgrade_and_the_way_back(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_2", "m_2")

    async def first(store: PostgresStore) -> None:
        await store.route(16)
        for lane in await claimed(store, endpoint_id, entries=1):
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)

    async def rest(store: PostgresStore) -> None:
        assert await store.route(16) == Routed(1, 2)
        for lane in await claimed(store, endpoint_id):
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)

    asyncio.run(stored(dsn, first))
    before = lanes(db)
    downgrade(dsn, "0021")
    assert lanes(db) == before
    upgrade(dsn)
    assert lanes(db) == before
    assert places(db, "lane") == places(db, "lane_key") == [(endpoint_id, 1), (endpoint_id, 2)]
    decisions.write("m_1", "m_3")
    asyncio.run(stored(dsn, rest))
    reached = {name: row[:2] for name, row in lanes(db).items()}
    assert reached == {"m_1": (2, 2), "m_2": (2, 2), "m_3": (1, 1)}
