"""The breaker of an endpoint on a real database: one for all dispatchers, one probe at a time."""

import asyncio
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Lane, Settled, Settlement, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import BreakerState, OrderPolicy, Outcome
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import attempts, expire_leases, lanes, make_due, stored
from tests.support.dispatch.dispatching import add_endpoint, dispatching, drain
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (0,) * 20, OrderPolicy.STOP)


def wanted(endpoint_id: int, count: int = 100, entries: int = 8) -> Wanted:
    return Wanted({endpoint_id: count}, uuid4(), 30, entries)


def judged(lane: Lane, outcome: Outcome) -> Settlement:
    head = lane.entries[0]
    status = 200 if outcome is Outcome.DELIVERED else None
    tried = Attempt(head.sequence, head.number, head.key, outcome, status, 3, "reset", None, None)
    return settle(lane, [tried], ENDPOINT, draw=0.5)


async def turn(store: PostgresStore, lanes: list[Lane], outcome: Outcome) -> list[Settled]:
    return await store.settle([judged(lane, outcome) for lane in lanes], repeated=False)


def breaker(db: psycopg.Connection) -> tuple[str, int]:
    (row,) = db.execute("SELECT breaker::text, openings FROM holdfast.endpoint_pace")
    return row


def let_time_pass(db: psycopg.Connection, span: str) -> None:
    """Move everything that an endpoint's pace waits for into the past."""
    db.execute(
        "UPDATE holdfast.endpoint_pace SET breaker_until = breaker_until - %(span)s::interval,"
        " breaker_since = breaker_since - %(span)s::interval,"
        " held_until = held_until - %(span)s::interval,"
        " stalled_since = stalled_since - %(span)s::interval,"
        " stalled_until = stalled_until - %(span)s::interval,"
        " paid_until = paid_until - %(span)s::interval",
        {"span": span},
    )


async def opened(store: PostgresStore, endpoint_id: int) -> None:
    """Route what there is, then let three lanes fail."""
    await store.route(16)
    claim = await store.claim(wanted(endpoint_id, 3), 0)
    settled = await turn(store, list(claim.lanes), Outcome.FAILED)
    (change,) = [each.paced for each in settled if each.paced is not None]
    assert (change.before, change.breaker) == (BreakerState.CLOSED, BreakerState.OPEN)


def test_open_breaker_is_open_for_every_dispatcher_and_counts_no_attempt(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL, breaker_threshold=3)
    decisions.write(*(f"m_{n}" for n in range(10)))

    async def work(store: PostgresStore) -> None:
        await opened(store, endpoint_id)
        before = lanes(db)

        async def elsewhere(other: PostgresStore) -> None:
            for each in (store, other):
                claim = await each.claim(wanted(endpoint_id), 0)
                assert (claim.lanes, claim.held) == ([], (endpoint_id,))

        await stored(dsn, elsewhere)
        assert lanes(db) == before
        assert not await store.is_pending([endpoint_id])
        assert breaker(db)[0] == BreakerState.OPEN

    asyncio.run(stored(dsn, work))


def test_one_probe_goes_out_however_many_dispatchers_claim_at_once(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL, breaker_threshold=3)
    decisions.write(*(f"m_{n}" for n in range(10)), *(f"m_{n}" for n in range(10)))

    async def work(store: PostgresStore) -> None:
        await opened(store, endpoint_id)
        let_time_pass(db, "10 s")
        make_due(db)
        claims = await asyncio.gather(*(store.claim(wanted(endpoint_id), 0) for _ in range(5)))
        (probe,) = [lane for claim in claims for lane in claim.lanes]
        assert len(probe.entries) == 1
        assert breaker(db) == ("half_open", 1)
        await turn(store, [probe], Outcome.FAILED)
        assert breaker(db) == ("open", 2)
        let_time_pass(db, "5 s")
        assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
        let_time_pass(db, "10 s")
        assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1

    asyncio.run(stored(dsn, work))


def test_dispatcher_that_dies_with_the_probe_blocks_it_no_longer_than_its_lease(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL, breaker_threshold=3)
    decisions.write(*(f"m_{n}" for n in range(10)))

    async def work(store: PostgresStore) -> None:
        await opened(store, endpoint_id)
        let_time_pass(db, "10 s")
        (dead,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
        let_time_pass(db, "31 s")
        expire_leases(db)
        assert len(await store.rescue(16)) == 1
        (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        await turn(store, [dead], Outcome.FAILED)
        assert breaker(db) == ("half_open", 1)
        await turn(store, [probe], Outcome.DELIVERED)
        assert breaker(db) == ("slow_start", 1)

    asyncio.run(stored(dsn, work))


def test_probe_that_was_given_back_makes_room_for_another_at_once(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL, breaker_threshold=3)
    decisions.write(*(f"m_{n}" for n in range(10)))

    async def work(store: PostgresStore) -> None:
        await opened(store, endpoint_id)
        let_time_pass(db, "10 s")
        (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        await store.settle([release(probe)], repeated=False)
        assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1
        assert len(attempts(db)) == 3

    asyncio.run(stored(dsn, work))


def test_slow_start_interleaves_new_decisions_with_the_backlog(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL, breaker_threshold=3)
    decisions.write(*(f"old_{n}" for n in range(50)))

    async def work(store: PostgresStore) -> None:
        await opened(store, endpoint_id)
        let_time_pass(db, "10 s")
        (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        await turn(store, [probe], Outcome.DELIVERED)
        decisions.write("new_1", "new_2", "new_3")
        await store.route(16)
        first = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert 1 <= sum(len(lane.entries) for lane in first) <= 2
        seen = set(first)
        for _ in range(4):
            let_time_pass(db, "1 s")
            claim = (await store.claim(wanted(endpoint_id), 0)).lanes
            assert sum(len(lane.entries) for lane in claim) <= 4
            seen |= set(claim)
        names = dict(db.execute("SELECT id, name FROM holdfast.subject").fetchall())
        kinds = {names[lane.subject_id].partition("_")[0] for lane in seen}
        assert kinds == {"old", "new"}
        let_time_pass(db, "60 s")
        assert (await store.claim(wanted(endpoint_id, 4), 0)).closed == (endpoint_id,)
        assert breaker(db) == ("closed", 0)

    asyncio.run(stored(dsn, work))


@pytest.mark.rest
def test_receiver_that_is_down_gets_probes_and_everything_once_it_is_back(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    """Not one failure more than its breaker allows, except requests already in flight."""
    threshold, concurrency = 5, 2
    add_endpoint(
        db,
        receiver.url,
        breaker_threshold=threshold,
        slow_start_seconds=1,
        schedule_seconds=[1] * 10,
    )
    decisions.write(*(f"m_{n}" for n in range(200)))
    receiver.script = lambda _seen: webhooks.answer(503)
    with dispatching(dsn, tmp_path / "log", "--concurrency", str(concurrency)) as process:
        process.says("breaker.opened")
        seen = len(receiver.seen)
        _state, openings = breaker(db)
        receiver.script = lambda _seen: webhooks.answer(200)
        eventually(lambda: breaker(db) == ("closed", 0))
        eventually(lambda: all(lane.delivered == 1 for lane in lanes(db).values()))
        assert process.lines("breaker.recovering")
    probes = openings  # where this test was late: each but the first opening is a failed probe
    assert threshold <= seen <= threshold + concurrency - 1 + probes


@pytest.mark.rest
@pytest.mark.parametrize(("status", "threshold"), [(401, 3), (403, 0)])
def test_receiver_that_refuses_our_secret_buries_no_entry(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    status: int,
    threshold: int,
) -> None:
    """The first failures open the breaker, then one probe at a time goes out, even for weeks."""
    add_endpoint(db, receiver.url, breaker_threshold=threshold, slow_start_seconds=0)
    decisions.write(*(f"m_{n}" for n in range(40)))
    receiver.script = lambda _seen: webhooks.answer(status)
    drain(dsn)
    assert breaker(db) == ("open", 1)
    for opening in (2, 3, 4):
        let_time_pass(db, "30 days")
        make_due(db)
        drain(dsn)
        assert breaker(db) == ("open", opening)
    assert db.execute("SELECT count(*) FROM holdfast.dead_letter").fetchone() == (0,)
    with Overview.connect(dsn) as overview:
        needs = {need["kind"]: need for need in overview.needs()}
    assert needs.keys() == {"no_dispatcher", "credentials_refused"}
    assert needs["credentials_refused"]["command"] == "holdfast endpoint test payouts"
    receiver.script = lambda _seen: webhooks.answer(200)
    let_time_pass(db, "30 days")
    make_due(db)
    report = drain(dsn)
    assert report.counts == {"delivered": 40}
