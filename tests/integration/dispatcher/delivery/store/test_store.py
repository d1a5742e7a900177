"""Routing, claiming, settling and rescuing on a real database, on good lines and bad ones."""

import asyncio
import logging
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.pace import Allowance
from holdfast.dispatcher.delivery.rules.values import (
    Attempt,
    Claim,
    ClaimRequest,
    Gap,
    Lane,
    Routed,
    Settlement,
)
from holdfast.dispatcher.delivery.store import session
from holdfast.dispatcher.delivery.store.claiming import claim_step, due_step
from holdfast.dispatcher.delivery.store.messages import run, statement
from holdfast.dispatcher.delivery.store.pool import Connection, Pool
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_plan import BEGINNING, END, ScanRange
from holdfast.dispatcher.delivery.store.session import Sessions
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.delivery import AttemptRow
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.dispatch.webhooks import answer
from tests.support.waiting import eventually
from tests.support.world import World

URL = "http://127.0.0.1:1/"
LEASE = """
    UPDATE holdfast.lane
    SET token = gen_random_uuid(), lease_until = now() + interval '1 minute', turn = turn + 1"""
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (5, 30), OrderPolicy.STOP)


def wanted(endpoint_id: int, count: int = 100, entries: int = 8) -> ClaimRequest:
    return ClaimRequest({endpoint_id: count}, uuid4(), 30, entries)


def judged(lane: Lane, *outcomes: Outcome, endpoint: Endpoint = ENDPOINT) -> Settlement:
    tried = [
        Attempt(
            entry.sequence,
            entry.number,
            entry.key,
            outcome,
            200 if outcome is Outcome.DELIVERED else None,
            3,
            None,
            None,
            None,
        )
        for entry, outcome in zip(lane.entries, outcomes, strict=False)
    ]
    return settle(lane, tried, endpoint, draw=0.5)


def numbers(lane: Lane) -> list[tuple[int, int]]:
    return [(entry.sequence, entry.number) for entry in lane.entries]


async def test_endpoint_gets_entries_from_its_start_on(world: World, store: PostgresStore) -> None:
    world.write("m_1", "m_2")
    world.write("m_1")
    start = datetime.now(UTC)
    await world.routed(store, "m_1", starts_at=start)
    lanes_by_subject = world.lanes()
    assert lanes_by_subject.keys() == {"m_1"}
    assert lanes_by_subject["m_1"][:2] == (2, 3)


async def test_drain_takes_what_is_routed_meanwhile(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1")
    with psycopg.connect(world.dsn) as reading:
        reading.execute("SELECT now()")
        await store.route(16)
        values = {"endpoint_ids": [endpoint_id]}
        assert reading.execute(statement("upkeep/pending"), values).fetchone() == (True,)


async def test_endpoint_gets_only_the_types_it_wants(world: World, store: PostgresStore) -> None:
    blocks = world.add_endpoint(URL, name="blocks", types=[BLOCK])
    world.add_endpoint(URL, name="paused", state="paused")
    world.add_endpoint(URL, name="disabled", state="disabled")
    rows = [world.decisions.row("m_1", type_) for type_ in (BLOCK, RELEASE, BLOCK, RELEASE)]
    world.decisions.write_rows([*rows, world.decisions.row("m_2", RELEASE)])
    await store.route(16)
    assert world.lanes(blocks).keys() == {"m_1"}
    assert world.lanes(blocks)["m_1"][:2] == (0, 3)
    (lane,) = (await store.claim(wanted(blocks), 0)).lanes
    assert [entry.sequence for entry in lane.entries] == [1, 3]
    await store.settle([judged(lane, Outcome.DELIVERED, Outcome.DELIVERED)], repeated=False)
    assert world.lanes(blocks)["m_1"].state is LaneState.IDLE
    per_endpoint = "SELECT count(*) FROM holdfast.lane GROUP BY endpoint_id ORDER BY 1"
    assert world.db.execute(per_endpoint).fetchall() == [(1,), (2,), (2,)]


async def test_lane_of_unwanted_entries_becomes_idle(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1", "m_2", type_=RELEASE)
    await store.route(16)
    world.db.execute("UPDATE holdfast.endpoint SET types = %s", [[BLOCK]])
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
    assert {lane.state for lane in world.lanes().values()} == {LaneState.IDLE}
    world.write("m_1")
    await store.route(16)
    (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert numbers(lane) == [(2, 1)]


async def test_concurrent_claims_never_share_a_lane(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, *(f"m_{n}" for n in range(60)))
    claims = await asyncio.gather(*(store.claim(wanted(endpoint_id, 15), 0) for _ in range(6)))
    taken = [lane.subject_id for claim in claims for lane in claim.lanes]
    assert len(taken) == len(set(taken)) == 60
    assert len({lane.token for claim in claims for lane in claim.lanes}) >= 4


async def test_lane_that_another_claims_is_left_to_it(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_2")
    with psycopg.connect(world.dsn) as other:
        # Nobody waits for a claim that did not commit yet, and nobody shares its lanes.
        other.execute(f"{LEASE} FROM holdfast.subject s WHERE s.id = subject_id AND s.name = 'm_1'")
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert world.lanes()["m_2"].token == lane.token
    assert world.lanes()["m_1"].token != lane.token


@pytest.mark.parametrize("state", ["paused", "disabled"])
async def test_nothing_is_claimed_for_an_endpoint_that_was_just_paused(
    world: World, store: PostgresStore, state: str
) -> None:
    endpoint_id = await world.routed(store, "m_1")
    # A dispatcher that loaded it before still asks for it.
    world.db.execute("UPDATE holdfast.endpoint SET state = %s", [state])
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
    world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
    assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1


async def test_rescue_takes_only_leases_that_ended(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_2")
    (dead,) = (await store.claim(wanted(endpoint_id, 1), 0)).lanes
    world.expire_leases()
    (alive,) = (await store.claim(wanted(endpoint_id, 1), 0)).lanes
    assert [each.subject_id for each in await store.rescue(16)] == [dead.subject_id]
    assert {lane.token for lane in world.lanes().values()} == {alive.token, None}


async def test_entries_routed_since_the_claim_keep_their_lane_due(
    world: World, store: PostgresStore
) -> None:
    endpoint_id = await world.routed(store, "m_1", types=[BLOCK])
    world.db.execute("DELETE FROM holdfast.entry")
    (subject_id,) = world.db.execute("SELECT subject_id FROM holdfast.lane").fetchone() or (0,)
    world.write("m_1")
    await store.route(16)
    # What a claim found that began before.
    lane = {"endpoint_ids": [endpoint_id], "subject_ids": [subject_id], "delivered": [0]}
    changed = world.db.execute(statement("claiming/lane_empty"), {**lane, "last": [1]})
    assert changed.fetchall() == []
    assert world.lanes()["m_1"] == (0, 2, 0, LaneState.DUE, None)


async def test_urgent_lanes_are_claimed_first(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL)
    world.write("calm")
    world.write("urgent")
    # Priority 0, the most urgent, is what the sink writes unless a row says otherwise.
    world.db.execute(
        "UPDATE holdfast.entry SET priority = 1 FROM holdfast.subject s"
        " WHERE s.id = subject_id AND s.name = 'calm'"
    )
    await store.route(16)
    (lane,) = (await store.claim(wanted(endpoint_id, 1), 0)).lanes
    assert world.lanes()["urgent"].token == lane.token


async def test_late_result_of_lost_lease_is_dropped(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_1")
    (mine,) = (await store.claim(wanted(endpoint_id, entries=1), 0)).lanes
    world.expire_leases()
    assert len(await store.rescue(16)) == 1
    (theirs,) = (await store.claim(wanted(endpoint_id, entries=1), 0)).lanes
    before = world.lanes()
    assert await store.settle([judged(mine, Outcome.DELIVERED)], repeated=False) == []
    assert world.lanes() == before
    settled = await store.settle([judged(theirs, Outcome.DELIVERED)], repeated=False)
    assert len(settled) == 1
    assert world.attempts() == [
        AttemptRow("m_1", 1, 1, "unknown"),
        AttemptRow("m_1", 1, 2, "delivered"),
    ]


async def test_settlement_in_doubt_is_recognised(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_2")
    claimed = (await store.claim(wanted(endpoint_id), 0)).lanes
    results = [judged(claimed[0], Outcome.UNKNOWN), judged(claimed[1], Outcome.DELIVERED)]
    assert len(await store.settle(results, repeated=False)) == 2
    again = await store.settle(results, repeated=True)
    assert {each.settlement.subject_id for each in again} == {lane.subject_id for lane in claimed}
    assert len(world.attempts()) == 2


async def test_rescued_result_in_doubt_was_not_stored(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1")
    (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    world.expire_leases()
    assert len(await store.rescue(16)) == 1
    # The rescue recorded the same lease; the receiver's answer is lost all the same.
    assert await store.settle([judged(lane, Outcome.DELIVERED)], repeated=True) == []
    assert world.attempts() == [AttemptRow("m_1", 1, 1, "unknown")]


async def test_rescue_books_every_possibly_sent_entry(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_1", "m_1")
    await store.claim(wanted(endpoint_id, entries=2), 0)
    assert await store.rescue(16) == []
    world.expire_leases()
    assert len(await store.rescue(16)) == 2
    (lane,) = (await store.claim(wanted(endpoint_id, entries=3), 0)).lanes
    assert numbers(lane) == [(1, 2), (2, 2), (3, 1)]
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    (lane,) = (await store.claim(wanted(endpoint_id, entries=3), 0)).lanes
    assert numbers(lane) == [(2, 2), (3, 1)]


async def test_released_lane_is_charged_no_attempt(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1")
    for _ in range(3):
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert numbers(lane) == [(1, 1)]
        await store.settle([release(lane)], repeated=False)
    assert world.lanes()["m_1"].state is LaneState.DUE
    assert world.attempts() == []


async def test_crashes_use_no_step_of_the_schedule(world: World, store: PostgresStore) -> None:
    """Neither for the entry that was head nor for one that was claimed behind it."""
    endpoint_id = world.add_endpoint(URL)
    world.write("m_1", "m_1")

    async def claim(store: PostgresStore) -> Lane:
        world.make_due()
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        return lane

    await store.route(16)
    for _ in range(10):
        await claim(store)
        world.expire_leases()
        assert len(await store.rescue(16)) == 2
    for step_us in (5_000_000, 30_000_000):
        result = judged(await claim(store), Outcome.FAILED)
        assert (result.move, result.delay_us) == (Move.RETRY, step_us)
        await store.settle([result], repeated=False)
    lane = await claim(store)
    assert numbers(lane) == [(1, 13), (2, 11)]
    result = judged(lane, Outcome.DELIVERED, Outcome.FAILED)
    assert (result.move, result.delay_us) == (Move.RETRY, 5_000_000)
    await store.settle([result], repeated=False)
    await store.settle([judged(await claim(store), Outcome.FAILED)], repeated=False)
    exhausted = judged(await claim(store), Outcome.FAILED)
    assert exhausted.dead is not None
    assert (exhausted.move, exhausted.dead.attempts) == (Move.BURY, 13)


async def test_nothing_is_sent_past_a_missing_entry(world: World, store: PostgresStore) -> None:
    everything = world.add_endpoint(URL, name="everything")
    blocks = world.add_endpoint(URL, name="blocks", types=[BLOCK])
    world.decisions.write_rows(
        [world.decisions.row("m_1", type_) for type_ in (BLOCK, RELEASE, BLOCK)]
    )
    world.write("m_1")
    world.db.execute("DELETE FROM holdfast.entry WHERE sequence = 2")
    await store.route(16)
    (lane,) = (await store.claim(wanted(everything), 0)).lanes
    assert numbers(lane) == [(1, 1)]
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    claim = await store.claim(wanted(everything), 0)
    assert claim == Claim([], [Gap(everything, lane.subject_id, 1, 3)])
    assert await store.claim(wanted(everything), 0) == Claim([], [])
    assert world.lanes(everything)["m_1"] == (1, 4, 0, LaneState.DUE, None)
    (lane,) = (await store.claim(wanted(blocks), 0)).lanes
    assert numbers(lane) == [(1, 1), (3, 1), (4, 1)]
    world.db.execute("DELETE FROM holdfast.entry WHERE sequence > 2")
    world.make_due()
    claim = await store.claim(wanted(everything), 0)
    assert claim == Claim([], [Gap(everything, lane.subject_id, 1, None)])
    assert world.lanes(everything)["m_1"] == (1, 4, 0, LaneState.DUE, None)


async def test_stopped_lane_stays_stopped(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1")
    (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
    world.write("m_1")
    await store.route(16)
    assert world.lanes()["m_1"] == (0, 2, 1, LaneState.STOPPED, None)
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []


async def test_claim_walks_indexes_without_statistics(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, *(f"m_{n}" for n in range(500)))
    world.db.execute("ANALYZE holdfast.lane, holdfast.entry, holdfast.attempt")
    ranges = [ScanRange(endpoint_id, 0, BEGINNING, END)]
    due = due_step({endpoint_id: Allowance(256, 8)}, ranges, free=False)
    claim = claim_step(wanted(endpoint_id, count=256))
    plan = []
    with world.db.transaction():
        world.db.execute(statement("connection/session"), {"plans": "auto"})
        for name, parameters in (due, claim):
            plan += world.db.execute(b"EXPLAIN " + statement(name), parameters).fetchall()
            world.db.execute(statement(name), parameters)
    text = "\n".join(line for (line,) in plan)
    assert "ix_lane_due" in text
    assert "Seq Scan" not in text


SAID = "terminating connection|закрытие подключения"
"""What a server of the tests says to a session that an administrator ends."""

OURS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast-dispatcher'"""


def test_locked_table_keeps_connections_from_nobody_else(world: World) -> None:
    """VACUUM FULL of the attempts stops claiming and settling, and not routing."""
    world.add_endpoint("http://127.0.0.1:1/")
    world.write("m_1")

    async def work() -> None:
        store = PostgresStore(world.dsn, connections_max=1)
        await store.open()
        try:
            # It waits for a connection three seconds at most.
            assert await store.route(16) == Routed(1, 1)
        finally:
            await store.close()

    with psycopg.connect(world.dsn) as other:
        other.execute("LOCK TABLE holdfast.attempt")
        asyncio.run(work())


async def test_connection_that_does_not_become_ready_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TRANSACTION_SECONDS", 0.3)
    stuck: list[int] = []

    async def warm(connection: Connection) -> None:
        if not stuck:
            stuck.append(connection.info.backend_pid)
            await connection.execute("SELECT pg_sleep(20)")

    sessions = Sessions(world.dsn, None, connections_max=1, warm=warm)
    await sessions.open()
    try:
        (row,) = await sessions.rows("connection/backend")
        assert row["pid"] not in stuck
        assert world.db.execute(OURS).fetchall() == [(row["pid"],)]
    finally:
        await sessions.close()
    assert stuck


async def test_broken_connection_is_reported_only_in_the_error(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a library says would stand between the lines of JSON of the dispatcher's log."""

    async def pid(connection: Connection) -> int:
        (row,) = await run(connection, "connection/backend")
        result: int = row["pid"]
        return result

    # As in the dispatcher's process, which does not configure the logs of libraries.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    sessions = Sessions(world.dsn, None, connections_max=1)
    await sessions.open()
    try:
        dead = await sessions.transaction(pid)
        world.db.execute("SELECT pg_terminate_backend(%s)", [dead])
        eventually(lambda: (dead,) not in world.db.execute(OURS).fetchall())
        with pytest.raises(session.StoreUnavailableError, match=SAID):
            await sessions.transaction(pid)
        assert await sessions.transaction(pid) != dead
    finally:
        await sessions.close()
    assert capsys.readouterr().err == ""


async def test_table_changed_under_prepared_statement_is_short_outage(world: World) -> None:
    world.add_endpoint("http://127.0.0.1:1/")
    store = PostgresStore(world.dsn, connections_max=1)
    await store.open()
    try:
        assert await store.route(16) == Routed(0, 0)
        world.db.execute("ALTER TABLE holdfast.batch ALTER entry_count TYPE integer")
        world.write("m_1")
        with pytest.raises(StoreUnavailableError, match=r"\S"):
            await store.route(16)
        assert await store.route(16) == Routed(1, 1)
    finally:
        await store.close()


def test_connection_whose_return_is_cancelled_is_lent_again(dsn: str) -> None:
    async def work() -> None:
        pool = Pool(dsn, min_size=1, max_size=1, timeout=10, open=False)
        await pool.open()
        try:
            used = asyncio.Event()

            async def use() -> int:
                async with pool.connection() as connection:
                    used.set()
                    await held.wait()
                    return connection.info.backend_pid

            held = asyncio.Event()
            user = asyncio.create_task(use())
            await used.wait()
            # Another task is in the pool's critical section while the connection is returned.
            async with pool._lock:
                held.set()
                while not pool._lock._waiters:  # noqa: ASYNC110 - asyncio does not signal its queue
                    await asyncio.sleep(0)
                user.cancel()
                (ended,) = await asyncio.gather(user, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError)
            async with pool.connection() as connection:
                await connection.execute("SELECT 1")
            assert pool.get_stats()["pool_available"] == 1
        finally:
            await pool.close()

    asyncio.run(work())


def test_connection_that_came_back_last_is_lent_first(dsn: str) -> None:
    async def work() -> list[int]:
        pool = Pool(dsn, min_size=3, max_size=3, timeout=10, open=False)
        await pool.open(wait=True)
        lent = []
        try:
            async with pool.connection(), pool.connection() as second:
                lent.append(second.info.backend_pid)
            async with pool.connection() as first:
                lent += [first.info.backend_pid]
            for _ in range(4):
                async with pool.connection() as connection:
                    lent.append(connection.info.backend_pid)
        finally:
            await pool.close()
        return lent

    second, *others = asyncio.run(work())
    assert len(set(others)) == 1
    assert second not in others


AWKWARD = "tab\t, line\n, back\\slash, \\N, \\., \\t, ünï, \U0001f4b8"


@pytest.mark.parametrize("body", [AWKWARD, "\\N", "\\.", "\\", "a\\"])
def test_answer_special_to_copy_is_kept(world: World, body: str) -> None:
    world.add_endpoint(world.receiver.url)
    world.receiver.script = lambda _seen: (
        answer(500, body.encode()) if len(world.receiver.seen) == 1 else answer()
    )
    world.write("m_1")
    world.drain()
    rows = world.db.execute(
        "SELECT number, outcome::text, status, error, response, receipt, retry_at IS NOT NULL"
        " FROM holdfast.attempt ORDER BY number"
    ).fetchall()
    assert rows == [
        (1, "failed", 500, None, body, None, True),
        (2, "delivered", 200, None, None, None, False),
    ]
