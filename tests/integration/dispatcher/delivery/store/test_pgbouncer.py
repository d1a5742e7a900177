"""The dispatcher's connections: behind pgbouncer in transaction mode, and when they are cancelled.

Behind the pooler each transaction may get another session, and another client the previous one.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.values import ClaimRequest
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.session import CONNECTIONS_MAX, Sessions, pools
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.roles import DISPATCHER
from tests.support.dispatch.dispatching import dispatching
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


SUBJECTS = [f"m_{n}" for n in range(10)]
SETTINGS = """
    SELECT current_user::text, current_setting('role'), current_setting('search_path'),
        current_setting('lock_timeout'), current_setting('statement_timeout'),
        current_setting('idle_in_transaction_session_timeout'), current_setting('datestyle'),
        current_setting('enable_seqscan'), current_setting('enable_hashjoin'),
        (SELECT count(*) FROM pg_prepared_statements),
        (SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
         WHERE locktype = 'advisory' AND datname = current_database())"""
SESSIONS = """
    SELECT state FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-dispatcher'"""


@pytest.fixture
def pooler(dsn: str) -> Iterator[PgBouncer]:
    with PgBouncer(dsn, pool=1) as pooler:
        yield pooler


def _settings(dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        row = connection.execute(SETTINGS).fetchone()
    assert row is not None
    return row


def test_shared_session_is_left_clean(world: World, pooler: PgBouncer, tmp_path: Path) -> None:
    world.add_endpoint()
    before = _settings(pooler.dsn)
    for _ in range(8):
        world.write(*SUBJECTS)
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                dispatching(pooler.dsn, tmp_path / name, "--drain", "--claim-lanes", "2")
            )
            for name in ("first", "second")
        ]
        for each in both:
            assert each.ends() == ExitCode.OK, each.text()
    assert world.receiver.overlaps == 0
    for subject in SUBJECTS:
        assert world.receiver.sequences(subject) == list(range(1, 9))
    assert _settings(pooler.dsn) == before
    assert before[0] != DISPATCHER


def test_session_settings_of_others_die(world: World, pooler: PgBouncer, tmp_path: Path) -> None:
    world.add_endpoint()
    world.write("m_1")
    with psycopg.connect(pooler.dsn, autocommit=True, prepare_threshold=None) as other:
        for statement in (
            "SET search_path = nowhere",
            "SET datestyle = 'SQL, DMY'",
            "SET lock_timeout = 1",
            "SET statement_timeout = 60",
            "SET role = holdfast_reader",
        ):
            other.execute(statement.encode())
        with dispatching(pooler.dsn, tmp_path / "log", "--drain") as running:
            assert running.ends() == ExitCode.OK, running.text()
    assert world.receiver.sequences("m_1") == [1]


def test_pooler_outage_loses_nothing(world: World, pooler: PgBouncer, tmp_path: Path) -> None:
    world.add_endpoint()
    world.write(*SUBJECTS)
    with dispatching(pooler.dsn, tmp_path / "log") as running:
        eventually(lambda: len(world.receiver.seen) == 10)
        pooler.kill()
        world.write(*SUBJECTS)
        running.says("store.away")
        pooler.start()
        eventually(lambda: len(world.receiver.seen) >= 20)
        running.says("store.back")
        eventually(lambda: {lane.delivered for lane in world.lanes().values()} == {2})
    assert all(world.receiver.sequences(subject)[:1] == [1] for subject in SUBJECTS)


async def _prepared(dsn: str) -> int:
    """How many statements a session keeps after a statement was run many times."""
    sessions = Sessions(dsn, None, connections_max=1)
    await sessions.open()
    try:
        for _ in range(20):
            await sessions.rows("upkeep/endpoint_load")

        async def count(connection: Connection) -> int:
            cursor = await connection.execute("SELECT count(*) AS kept FROM pg_prepared_statements")
            row = await cursor.fetchone()
            assert row is not None
            kept: int = row["kept"]
            return kept

        return await sessions.transaction(count)
    finally:
        await sessions.close()


def test_nothing_is_prepared_behind_a_pooler(world: World, pooler: PgBouncer) -> None:
    assert asyncio.run(_prepared(world.dsn)) > 0
    assert asyncio.run(_prepared(pooler.dsn)) == 0


def test_role_and_limits_are_those_of_every_transaction(dsn: str) -> None:
    async def settings() -> dict[str, Any]:
        sessions = Sessions(dsn, None, connections_max=1)
        await sessions.open()

        async def read(connection: Connection) -> dict[str, Any]:
            cursor = await connection.execute(
                "SELECT current_user::text AS role, current_setting('enable_seqscan') AS seqscan,"
                " current_setting('statement_timeout') AS statement"
            )
            return dict(await cursor.fetchone() or {})

        try:
            results = [await sessions.transaction(read) for _ in range(3)]
            assert results == results[:1] * 3
            return results[0]
        finally:
            await sessions.close()

    assert asyncio.run(settings()) == {"role": DISPATCHER, "seqscan": "off", "statement": "30s"}


def idle(db: psycopg.Connection) -> bool:
    states = [state for (state,) in db.execute(SESSIONS)]
    return len(states) <= CONNECTIONS_MAX and set(states) == {"idle"}


async def test_200_cancellations_leak_no_connection_and_no_transaction(world: World) -> None:
    """Cancelled while waiting for a connection, in a statement, in COMMIT: wherever it falls."""
    endpoint_id = world.add_endpoint("http://127.0.0.1:1/")
    world.write(*SUBJECTS)
    draw = random.Random(17)  # noqa: S311 - a plan of faults, not a secret

    async def cancelled(store: PostgresStore) -> int:
        loop, count = asyncio.get_running_loop(), 0
        for turn in range(20):
            wanted = ClaimRequest({endpoint_id: 1}, uuid4(), 30, 1)
            tasks = [
                asyncio.create_task(store.claim(wanted, seconds()) if n % 2 else store.route(1))
                for n in range(12)
            ]
            for task in tasks:
                loop.call_later(draw.random() * 0.02 * (turn % 4), task.cancel)
            done = await asyncio.gather(*tasks, return_exceptions=True)
            count += sum(isinstance(each, asyncio.CancelledError) for each in done)
            assert all(
                isinstance(each, asyncio.CancelledError) or not isinstance(each, BaseException)
                for each in done
            ), done
        return count

    before = pools().connections
    store = PostgresStore(world.dsn)
    await store.open()
    try:
        count = 0
        while count < 200:
            count += await cancelled(store)
        # Every connection can still be had, all at once.
        await asyncio.gather(*(store.endpoints() for _ in range(2 * CONNECTIONS_MAX)))
        assert pools().connections - before <= CONNECTIONS_MAX
        # In a thread: the pool replaces connections on this loop.
        await asyncio.to_thread(eventually, lambda: idle(world.db))
    finally:
        await store.close()
    eventually(lambda: world.db.execute(SESSIONS).fetchall() == [])


def test_connections_of_two_busy_dispatchers_are_bounded(world: World, tmp_path: Path) -> None:
    world.add_endpoint(concurrency=64)
    most = 0
    with (
        dispatching(world.dsn, tmp_path / "first", "--listen", "127.0.0.1:0") as first,
        dispatching(world.dsn, tmp_path / "second") as second,
    ):
        first.says("dispatcher.started")
        second.says("dispatcher.started")
        for _ in range(5):
            world.write(*(f"m_{n}" for n in range(200)))
            most = max(most, len(world.db.execute(SESSIONS).fetchall()))

        def delivered() -> bool:
            nonlocal most
            most = max(most, len(world.db.execute(SESSIONS).fetchall()))
            return len(world.receiver.seen) >= 1000

        eventually(delivered)
    # A pool each; plus one for self-tests (and the monitor), and one that listens.
    assert most <= 2 * (CONNECTIONS_MAX + 2)
