"""Endpoints that are added while batches are being routed."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast.dispatcher.delivery.rules.values import Routed, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.sink.contract.exits import CommandError
from tests.support.dispatch.delivery import stored
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

SETTINGS: dict[str, Any] = {
    "name": "payouts",
    "url": "https://payouts.example/",
    "types": [],
    "secret_refs": ["env:SECRET"],
    "allow_cidrs": [],
    "connect_timeout_ms": 1000,
    "total_timeout_ms": 2000,
    "concurrency": 8,
    "schedule_seconds": [5],
    "order_policy": "stop",
}
GATE = 4711
HOLD_ROUTING = f"""
    CREATE FUNCTION holdfast.hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM set_config('lock_timeout', '0', true);
        PERFORM pg_advisory_xact_lock({GATE});
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold BEFORE UPDATE ON holdfast.batch
        FOR EACH ROW EXECUTE FUNCTION holdfast.hold();
"""
HOLD_SINK = f"""
    CREATE FUNCTION holdfast.hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock({GATE});
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold BEFORE INSERT ON holdfast.batch
        FOR EACH ROW WHEN (NEW.stream = 'test') EXECUTE FUNCTION holdfast.hold();
"""
WAITS = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND objid <> %s
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def is_waiting(db: psycopg.Connection, work: Future[Any], other_than: int = 0) -> bool:
    assert not work.done(), work.result()
    return db.execute(WAITS, [other_than]).fetchone() == (1,)


def route(dsn: str) -> Routed:
    routed: list[Routed] = []

    async def work(store: PostgresStore) -> None:
        routed.append(await store.route(16))

    asyncio.run(stored(dsn, work))
    return routed[0]


def claimed(dsn: str) -> list[int]:
    sequences: list[int] = []

    async def work(store: PostgresStore) -> None:
        claim = await store.claim(Wanted({1: 10}, uuid4(), 30, 8), 0)
        sequences.extend(entry.sequence for lane in claim.lanes for entry in lane.entries)

    asyncio.run(stored(dsn, work))
    return sequences


def test_routing_waits_for_and_sees_new_endpoint(world: World, threads: ThreadPoolExecutor) -> None:
    with psycopg.connect(world.dsn, row_factory=dict_row) as adding, adding.transaction():
        Endpoints(adding).add_endpoint(SETTINGS, from_beginning=False, reason="test")
        world.write("m_1")
        routing = threads.submit(route, world.dsn)
        eventually(lambda: is_waiting(world.db, routing))
    assert routing.result() == Routed(batches=1, lanes=1)
    assert claimed(world.dsn) == [1]


@pytest.mark.parametrize(("from_beginning", "expected"), [(False, [2]), (True, [1, 2])])
def test_added_endpoint_waits_for_routing_and_starts_after_it(
    world: World, threads: ThreadPoolExecutor, from_beginning: bool, expected: list[int]
) -> None:
    world.db.execute(HOLD_ROUTING)
    written = world.write("m_1")

    def add() -> Any:
        with Endpoints.connect(world.dsn) as store:
            return store.add_endpoint(SETTINGS, from_beginning=from_beginning, reason="test")

    with psycopg.connect(world.dsn) as gate:
        gate.execute("SELECT pg_advisory_xact_lock(%s)", [GATE])
        routing = threads.submit(route, world.dsn)
        eventually(lambda: is_waiting(world.db, routing))
        adding = threads.submit(add)
        eventually(lambda: is_waiting(world.db, adding, other_than=GATE))
        assert world.db.execute("SELECT count(*) FROM holdfast.endpoint").fetchone() == (0,)
    assert routing.result() == Routed(batches=1, lanes=0)
    starts_at = adding.result()["starts_at"]
    assert starts_at is None if from_beginning else starts_at > written.written_at
    world.write("m_1")
    assert route(world.dsn) == Routed(batches=1, lanes=1)
    assert claimed(world.dsn) == expected


def test_later_commit_is_for_an_added_endpoint(world: World, threads: ThreadPoolExecutor) -> None:
    world.write("m_1")
    world.db.execute(HOLD_SINK)
    with psycopg.connect(world.dsn) as gate:
        gate.execute("SELECT pg_advisory_xact_lock(%s)", [GATE])
        writing = threads.submit(world.decisions.write, "m_1", "m_2")
        eventually(lambda: is_waiting(world.db, writing))
        # A later number is taken, and committed, before the earlier one.
        with Decisions(world.dsn, "free") as other:
            other.write("m_3")
        with Endpoints.connect(world.dsn) as store:
            store.add_endpoint(SETTINGS, from_beginning=False, reason="test")
    assert writing.result().batch_no == 2
    route(world.dsn)
    assert {subject: row[:2] for subject, row in world.lanes().items()} == {
        "m_1": (1, 2),
        "m_2": (0, 1),
    }


def test_backfill_adds_what_was_routed_before_an_older_batch(world: World) -> None:
    older = world.write("m_1")
    world.write("m_1")
    with psycopg.connect(world.dsn) as other:
        other.execute("SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE", [older.batch_no])
        assert route(world.dsn) == Routed(batches=1, lanes=0)
    with Endpoints.connect(world.dsn) as store:
        store.add_endpoint(SETTINGS, from_beginning=True, reason="test")
        world.db.execute("DELETE FROM holdfast.lane")
        route(world.dsn)
        assert world.lanes()["m_1"][:2] == (0, 1)
        assert (store.backfill("payouts"), store.backfill("payouts")) == (1, 0)
    assert claimed(world.dsn) == [1, 2]


def test_endpoint_added_without_lanes_says_how_to_make_them(world: World) -> None:
    world.write("m_1")
    world.db.execute("REVOKE INSERT ON holdfast.lane FROM holdfast_operator")
    with (
        Endpoints.connect(world.dsn) as store,
        pytest.raises(
            CommandError, match=r"was added, but.*Nothing is lost: run `holdfast endpoint"
        ),
    ):
        store.add_endpoint(SETTINGS, from_beginning=True, reason="test")
    world.db.execute("GRANT INSERT ON holdfast.lane TO holdfast_operator")
    with Endpoints.connect(world.dsn) as store:
        assert store.backfill("payouts") == 1
    assert world.lanes()["m_1"][:2] == (0, 1)
