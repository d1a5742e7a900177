"""Routing, claiming, settling and rescuing on a real database, without a transport."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg

import holdfast.dispatcher.delivery.store
from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.pace import Allowance
from holdfast.dispatcher.delivery.rules.values import Attempt, Claim, Gap, Lane, Settlement, Wanted
from holdfast.dispatcher.delivery.store.claimed_rows import claim_step, due_step
from holdfast.dispatcher.delivery.store.messages import statement
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_ranges import BEGINNING, END, ScanRange
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.delivery import (
    AttemptRow,
    attempts,
    expire_leases,
    lanes,
    make_due,
    stored,
)
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.entries import BLOCK, RELEASE
from tests.support.job.decisions import Decisions

URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (5, 30), OrderPolicy.STOP)
SQL = Path(holdfast.dispatcher.delivery.store.__file__).parent / "sql"


def wanted(endpoint_id: int, count: int = 100, entries: int = 8) -> Wanted:
    return Wanted({endpoint_id: count}, uuid4(), 30, entries)


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


def test_endpoint_gets_what_is_written_from_its_start_on(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    decisions.write("m_1", "m_2")
    decisions.write("m_1")
    start = datetime.now(UTC)
    add_endpoint(db, URL, starts_at=start)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        found = lanes(db)
        assert found.keys() == {"m_1"}
        assert found["m_1"][:2] == (2, 3)

    asyncio.run(stored(dsn, work))


def test_drain_goes_on_with_what_was_routed_after_its_look_began(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        with psycopg.connect(dsn) as reading:
            reading.execute("SELECT now()")
            await store.route(16)
            given = {"endpoint_ids": [endpoint_id]}
            assert reading.execute(statement("upkeep/pending"), given).fetchone() == (True,)

    asyncio.run(stored(dsn, work))


def test_endpoint_gets_the_types_that_it_wants_and_no_others(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    blocks = add_endpoint(db, URL, name="blocks", types=[BLOCK])
    add_endpoint(db, URL, name="paused", state="paused")
    add_endpoint(db, URL, name="disabled", state="disabled")
    rows = [decisions.row("m_1", type_) for type_ in (BLOCK, RELEASE, BLOCK, RELEASE)]
    decisions.write_rows([*rows, decisions.row("m_2", RELEASE)])

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        assert lanes(db, blocks).keys() == {"m_1"}
        assert lanes(db, blocks)["m_1"][:2] == (0, 3)
        (lane,) = (await store.claim(wanted(blocks), 0)).lanes
        assert [entry.sequence for entry in lane.entries] == [1, 3]
        await store.settle([judged(lane, Outcome.DELIVERED, Outcome.DELIVERED)], repeated=False)
        assert lanes(db, blocks)["m_1"].state is LaneState.IDLE
        per_endpoint = "SELECT count(*) FROM holdfast.lane GROUP BY endpoint_id ORDER BY 1"
        assert db.execute(per_endpoint).fetchall() == [(1,), (2,), (2,)]

    asyncio.run(stored(dsn, work))


def test_lane_whose_entries_are_no_longer_wanted_becomes_idle(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_2", type_=RELEASE)

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        db.execute("UPDATE holdfast.endpoint SET types = %s", [[BLOCK]])
        assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
        assert {lane.state for lane in lanes(db).values()} == {LaneState.IDLE}
        decisions.write("m_1")
        await store.route(16)
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert numbers(lane) == [(2, 1)]

    asyncio.run(stored(dsn, work))


def test_claims_at_the_same_moment_never_share_a_lane(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write(*(f"m_{n}" for n in range(60)))

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        claims = await asyncio.gather(*(store.claim(wanted(endpoint_id, 15), 0) for _ in range(6)))
        taken = [lane.subject_id for claim in claims for lane in claim.lanes]
        assert len(taken) == len(set(taken)) == 60
        assert len({lane.token for claim in claims for lane in claim.lanes}) >= 4

    asyncio.run(stored(dsn, work))


def test_urgent_lanes_are_claimed_first(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("calm")
    decisions.write("urgent")
    # Priority 0, the most urgent, is what the sink writes unless a row says otherwise.
    db.execute(
        "UPDATE holdfast.entry SET priority = 1 FROM holdfast.subject s"
        " WHERE s.id = subject_id AND s.name = 'calm'"
    )

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = (await store.claim(wanted(endpoint_id, 1), 0)).lanes
        assert lanes(db)["urgent"].token == lane.token

    asyncio.run(stored(dsn, work))


def test_late_result_of_a_lost_lease_changes_nothing(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (mine,) = (await store.claim(wanted(endpoint_id, entries=1), 0)).lanes
        expire_leases(db)
        assert len(await store.rescue(16)) == 1
        (theirs,) = (await store.claim(wanted(endpoint_id, entries=1), 0)).lanes
        before = lanes(db)
        assert await store.settle([judged(mine, Outcome.DELIVERED)], repeated=False) == []
        assert lanes(db) == before
        settled = await store.settle([judged(theirs, Outcome.DELIVERED)], repeated=False)
        assert len(settled) == 1
        assert attempts(db) == [
            AttemptRow("m_1", 1, 1, "unknown"),
            AttemptRow("m_1", 1, 2, "delivered"),
        ]

    asyncio.run(stored(dsn, work))


def test_settlement_whose_commit_was_in_doubt_is_recognised(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_2")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        claimed = (await store.claim(wanted(endpoint_id), 0)).lanes
        results = [judged(claimed[0], Outcome.UNKNOWN), judged(claimed[1], Outcome.DELIVERED)]
        assert len(await store.settle(results, repeated=False)) == 2
        again = await store.settle(results, repeated=True)
        assert {each.settlement.subject_id for each in again} == {
            lane.subject_id for lane in claimed
        }
        assert len(attempts(db)) == 2

    asyncio.run(stored(dsn, work))


def test_rescue_books_every_entry_that_may_have_been_sent(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_1", "m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        await store.claim(wanted(endpoint_id, entries=2), 0)
        assert await store.rescue(16) == []
        expire_leases(db)
        assert len(await store.rescue(16)) == 2
        (lane,) = (await store.claim(wanted(endpoint_id, entries=3), 0)).lanes
        assert numbers(lane) == [(1, 2), (2, 2), (3, 1)]
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        (lane,) = (await store.claim(wanted(endpoint_id, entries=3), 0)).lanes
        assert numbers(lane) == [(2, 2), (3, 1)]

    asyncio.run(stored(dsn, work))


def test_released_lane_is_charged_no_attempt(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        for _ in range(3):
            (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
            assert numbers(lane) == [(1, 1)]
            await store.settle([release(lane)], repeated=False)
        assert lanes(db)["m_1"].state is LaneState.DUE
        assert attempts(db) == []

    asyncio.run(stored(dsn, work))


def test_crashes_of_dispatchers_use_up_no_step_of_the_schedule(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Neither for the entry that was head nor for one that was claimed behind it."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1", "m_1")

    async def claim(store: PostgresStore) -> Lane:
        make_due(db)
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        return lane

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        for _ in range(10):
            await claim(store)
            expire_leases(db)
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

    asyncio.run(stored(dsn, work))


def test_nothing_is_sent_past_an_entry_that_is_missing(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    everything = add_endpoint(db, URL, name="everything")
    blocks = add_endpoint(db, URL, name="blocks", types=[BLOCK])
    decisions.write_rows([decisions.row("m_1", type_) for type_ in (BLOCK, RELEASE, BLOCK)])
    decisions.write("m_1")
    db.execute("DELETE FROM holdfast.entry WHERE sequence = 2")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = (await store.claim(wanted(everything), 0)).lanes
        assert numbers(lane) == [(1, 1)]
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        claim = await store.claim(wanted(everything), 0)
        assert claim == Claim([], [Gap(everything, lane.subject_id, 1, 3)])
        assert await store.claim(wanted(everything), 0) == Claim([], [])
        assert lanes(db, everything)["m_1"] == (1, 4, 0, LaneState.DUE, None)
        (lane,) = (await store.claim(wanted(blocks), 0)).lanes
        assert numbers(lane) == [(1, 1), (3, 1), (4, 1)]
        db.execute("DELETE FROM holdfast.entry WHERE sequence > 2")
        make_due(db)
        claim = await store.claim(wanted(everything), 0)
        assert claim == Claim([], [Gap(everything, lane.subject_id, 1, None)])
        assert lanes(db, everything)["m_1"] == (1, 4, 0, LaneState.DUE, None)

    asyncio.run(stored(dsn, work))


def test_stopped_lane_stays_stopped_when_more_is_routed(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
        decisions.write("m_1")
        await store.route(16)
        assert lanes(db)["m_1"] == (0, 2, 1, LaneState.STOPPED, None)
        assert (await store.claim(wanted(endpoint_id), 0)).lanes == []

    asyncio.run(stored(dsn, work))


def test_claim_walks_indexes_however_wrong_the_statistics_are(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    decisions.write(*(f"m_{n}" for n in range(500)))

    async def work(store: PostgresStore) -> None:
        await store.route(16)

    asyncio.run(stored(dsn, work))
    db.execute("ANALYZE holdfast.lane, holdfast.entry, holdfast.attempt")
    ranges = [ScanRange(endpoint_id, 0, BEGINNING, END)]
    due = due_step({endpoint_id: Allowance(256, 8)}, ranges, free=False)
    claim = claim_step(wanted(endpoint_id, count=256))
    plan = []
    with db.transaction():
        db.execute((SQL / "connection/session.sql").read_bytes(), {"plans": "auto"})
        for name, given in (due, claim):
            plan += db.execute(b"EXPLAIN " + statement(name), given).fetchall()
            db.execute(statement(name), given)
    text = "\n".join(line for (line,) in plan)
    assert "ix_lane_due" in text
    assert "Seq Scan" not in text
