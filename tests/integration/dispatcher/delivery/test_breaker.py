"""What paces an endpoint: its breaker, its retry budget, its rate and slow start."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.values import (
    Attempt,
    ClaimRequest,
    Lane,
    Settled,
    Settlement,
)
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS, sustained
from holdfast.sink.contract.states import BreakerState, DeadReason, OrderPolicy, Outcome
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import DELIVERED, applied, make_due, stored
from tests.support.dispatch.dispatching import dispatching
from tests.support.dispatch.webhooks import Seen
from tests.support.waiting import eventually
from tests.support.world import World

URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (0,) * 20, OrderPolicy.STOP)
PROBED = """
    UPDATE holdfast.endpoint_pace
    SET breaker = 'half_open', breaker_until = now() + interval '30 s', probe = gen_random_uuid()"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()"""


def wanted(endpoint_id: int, count: int = 100, entries: int = 8) -> ClaimRequest:
    return ClaimRequest({endpoint_id: count}, uuid4(), 30, entries)


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


async def test_open_breaker_is_open_for_all(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    before = world.lanes()

    async def elsewhere(other: PostgresStore) -> None:
        for each in (store, other):
            claim = await each.claim(wanted(endpoint_id), 0)
            assert (claim.lanes, claim.held) == ([], (endpoint_id,))

    await stored(world.dsn, elsewhere)
    assert world.lanes() == before
    assert not await store.is_pending([endpoint_id])
    assert breaker(world.db)[0] == BreakerState.OPEN


async def test_one_probe_for_many_concurrent_claims(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)), *(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    world.make_due()
    claims = await asyncio.gather(*(store.claim(wanted(endpoint_id), 0) for _ in range(5)))
    (probe,) = [lane for claim in claims for lane in claim.lanes]
    assert len(probe.entries) == 1
    assert breaker(world.db) == ("half_open", 1)
    await turn(store, [probe], Outcome.FAILED)
    assert breaker(world.db) == ("open", 2)
    let_time_pass(world.db, "5 s")
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
    let_time_pass(world.db, "10 s")
    assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1


async def test_claim_waits_for_the_probe_of_another_and_takes_none(
    world: World, store: PostgresStore
) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    with psycopg.connect(world.dsn) as other:
        other.execute(PROBED)
        claiming = asyncio.create_task(store.claim(wanted(endpoint_id), 0))
        await asyncio.to_thread(eventually, lambda: world.value(WAITING) == 1)
        other.commit()
        claim = await claiming
    assert claim.lanes == []


async def test_dead_prober_blocks_no_longer_than_its_lease(
    world: World, store: PostgresStore
) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    (dead,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert (await store.claim(wanted(endpoint_id), 0)).lanes == []
    let_time_pass(world.db, "31 s")
    world.expire_leases()
    assert len(await store.rescue(16)) == 1
    (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await turn(store, [dead], Outcome.FAILED)
    assert breaker(world.db) == ("half_open", 1)
    await turn(store, [probe], Outcome.DELIVERED)
    assert breaker(world.db) == ("slow_start", 1)


async def test_released_probe_makes_room_at_once(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"m_{n}" for n in range(10)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await store.settle([release(probe)], repeated=False)
    assert len((await store.claim(wanted(endpoint_id), 0)).lanes) == 1
    assert len(world.attempts()) == 3


async def test_slow_start_interleaves_new_and_backlog(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL, breaker_threshold=3)
    world.write(*(f"old_{n}" for n in range(50)))
    await opened(store, endpoint_id)
    let_time_pass(world.db, "10 s")
    (probe,) = (await store.claim(wanted(endpoint_id), 0)).lanes
    await turn(store, [probe], Outcome.DELIVERED)
    world.write("new_1", "new_2", "new_3")
    await store.route(16)
    first = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert 1 <= sum(len(lane.entries) for lane in first) <= 2
    seen = set(first)
    for _ in range(4):
        let_time_pass(world.db, "1 s")
        claim = (await store.claim(wanted(endpoint_id), 0)).lanes
        assert sum(len(lane.entries) for lane in claim) <= 4
        seen |= set(claim)
    names = dict(world.db.execute("SELECT id, name FROM holdfast.subject").fetchall())
    kinds = {names[lane.subject_id].partition("_")[0] for lane in seen}
    assert kinds == {"old", "new"}
    let_time_pass(world.db, "60 s")
    assert (await store.claim(wanted(endpoint_id, 4), 0)).closed == (endpoint_id,)
    assert breaker(world.db) == ("closed", 0)


@pytest.mark.rest
def test_receiver_that_was_down_gets_everything(world: World) -> None:
    """Not one failure more than its breaker allows, except requests already in flight."""
    threshold, concurrency = 5, 2
    world.add_endpoint(
        world.receiver.url,
        breaker_threshold=threshold,
        slow_start_seconds=1,
        schedule_seconds=[1] * 10,
    )
    world.write(*(f"m_{n}" for n in range(200)))
    world.receiver.script = lambda _seen: webhooks.answer(503)
    with world.dispatching("--concurrency", str(concurrency)) as process:
        process.says("breaker.opened")
        seen = len(world.receiver.seen)
        _state, openings = breaker(world.db)
        world.receiver.script = lambda _seen: webhooks.answer(200)
        eventually(lambda: breaker(world.db) == ("closed", 0))
        eventually(lambda: all(lane.delivered == 1 for lane in world.lanes().values()))
        assert process.lines("breaker.recovering")
    probes = openings  # where this test was late: each but the first opening is a failed probe
    assert threshold <= seen <= threshold + concurrency - 1 + probes


@pytest.mark.rest
@pytest.mark.parametrize(("status", "threshold"), [(401, 3), (403, 0)])
def test_receiver_that_refuses_our_secret_buries_no_entry(
    world: World, status: int, threshold: int
) -> None:
    """The first failures open the breaker, then one probe at a time goes out, even for weeks."""
    world.add_endpoint(world.receiver.url, breaker_threshold=threshold, slow_start_seconds=0)
    world.write(*(f"m_{n}" for n in range(40)))
    world.receiver.script = lambda _seen: webhooks.answer(status)
    world.drain()
    assert breaker(world.db) == ("open", 1)
    for opening in (2, 3, 4):
        let_time_pass(world.db, "30 days")
        world.make_due()
        world.drain()
        assert breaker(world.db) == ("open", opening)
    assert world.db.execute("SELECT count(*) FROM holdfast.dead_letter").fetchone() == (0,)
    with Overview.connect(world.dsn) as overview:
        needs = {need["kind"]: need for need in overview.needs()}
    assert needs.keys() == {"no_dispatcher", "credentials_refused"}
    assert needs["credentials_refused"]["command"] == "holdfast endpoint test payouts"
    world.receiver.script = lambda _seen: webhooks.answer(200)
    let_time_pass(world.db, "30 days")
    world.make_due()
    report = world.drain()
    assert report.counts == {"delivered": 40}


BUDGETED = Endpoint(1, "e", URL, (), 1, 2, 64, (5,) * 1000, OrderPolicy.STOP, budget_seconds=3600)


def let_retries_age(db: psycopg.Connection, span: str) -> None:
    """Move every moment that the running clock is made of into the past; lanes are due then."""
    make_due(db)
    db.execute(
        "UPDATE holdfast.lane SET tried_since_us = tried_since_us"
        " - extract(epoch FROM %(span)s::interval) * 1000000",
        {"span": span},
    )
    db.execute(
        "UPDATE holdfast.endpoint_pace SET stalled_since = stalled_since - %(span)s::interval,"
        " stalled_until = stalled_until - %(span)s::interval,"
        " held_until = held_until - %(span)s::interval,"
        " breaker_since = breaker_since - %(span)s::interval,"
        " breaker_until = breaker_until - %(span)s::interval",
        {"span": span},
    )


async def claim(store: PostgresStore, entries: int = 1) -> Lane:
    (lane,) = (await store.claim(ClaimRequest({1: 1}, uuid4(), 30, entries), 0)).lanes
    return lane


def failing(
    lane: Lane, outcome: Outcome = Outcome.FAILED, asked: float | None = None
) -> Settlement:
    head = lane.entries[0]
    tried = Attempt(
        head.sequence, head.number, head.key, outcome, None, 3, "reset", None, None, asked
    )
    return settle(lane, [tried], BUDGETED, draw=0.5)


async def test_entry_is_dead_after_its_budget(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=0)
    for _ in range(2):
        result = failing(await claim(store))
        assert result.move is Move.RETRY
        await store.settle([result], repeated=False)
        let_retries_age(world.db, "29 min")
    let_retries_age(world.db, "3 min")
    result = failing(await claim(store))
    assert result.dead is not None
    assert (result.dead.reason, result.dead.attempts) == (DeadReason.EXHAUSTED, 3)


async def test_next_entry_has_a_budget_of_its_own(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", "m_1", breaker_threshold=0)
    await store.settle([failing(await claim(store))], repeated=False)
    let_retries_age(world.db, "59 min")
    lane = await claim(store, entries=2)
    outcomes = (Outcome.DELIVERED, Outcome.FAILED)
    tried = [
        Attempt(entry.sequence, entry.number, entry.key, outcome, None, 3, *[None] * 3)
        for entry, outcome in zip(lane.entries, outcomes, strict=True)
    ]
    tried[0] = replace(tried[0], status=200)
    await store.settle([settle(lane, tried, BUDGETED, draw=0.5)], repeated=False)
    let_retries_age(world.db, "59 min")
    result = failing(await claim(store))
    assert result.move is Move.RETRY
    await store.settle([result], repeated=False)
    let_retries_age(world.db, "2 min")
    assert failing(await claim(store)).dead is not None


@pytest.mark.guarantee(9)
async def test_days_of_open_breaker_bury_nothing(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=1)
    for _ in range(10):
        result = failing(await claim(store))
        assert result.move is Move.RETRY
        await store.settle([result], repeated=False)
        let_retries_age(world.db, "1 day")


@pytest.mark.guarantee(9)
async def test_retry_after_uses_budget_of_one_entry_only(
    world: World, store: PostgresStore
) -> None:
    """A receiver that puts one entry off for ever ends that, and costs the others nothing."""
    await world.routed(store, "m_put_off", "m_waits", breaker_threshold=0)
    (put_off, waits) = (await store.claim(ClaimRequest({1: 2}, uuid4(), 30, 1), 0)).lanes
    await store.settle([failing(waits)], repeated=False)
    result = failing(put_off, Outcome.THROTTLED, asked=1200.0)
    for _ in range(3):
        assert result.move is Move.RETRY
        await store.settle([result], repeated=False)
        let_retries_age(world.db, "20 min")
        lanes = (await store.claim(ClaimRequest({1: 2}, uuid4(), 30, 1), 0)).lanes
        (put_off,) = [each for each in lanes if each.subject_id == put_off.subject_id]
        (waits,) = [each for each in lanes if each.subject_id != put_off.subject_id]
        assert waits.tried_seconds < 60
        await store.settle([release(waits)], repeated=False)
        result = failing(put_off, Outcome.THROTTLED, asked=1200.0)
    assert result.dead is not None
    assert (result.dead.reason, result.dead.attempts) == (DeadReason.EXHAUSTED, 4)


@pytest.mark.guarantee(9)
async def test_paused_and_disabled_use_no_budget(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=0)
    for state in ("paused", "disabled"):
        await store.settle([failing(await claim(store))], repeated=False)
        world.db.execute(f"UPDATE holdfast.endpoint SET state = '{state}'".encode())
        let_retries_age(world.db, "3 days")
        world.db.execute("UPDATE holdfast.endpoint SET state = 'active'")
        world.make_due()
        lane = await claim(store)
        assert 0 <= lane.tried_seconds < 60
        await store.settle([failing(lane)], repeated=False)
        world.make_due()
    let_retries_age(world.db, "2 h")
    assert failing(await claim(store)).dead is not None


async def test_crashes_before_an_answer_use_no_budget(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", breaker_threshold=0)
    for _ in range(3):
        await claim(store)
        world.expire_leases()
        await store.rescue(16)
        let_retries_age(world.db, "1 h")
    assert failing(await claim(store)).move is Move.RETRY


PACED = Endpoint(1, "e", URL, (), 1, 2, 64, (5,) * 10, OrderPolicy.STOP)

RATE = 20


def entries_of(claimed: list[Lane]) -> int:
    return sum(len(lane.entries) for lane in claimed)


def busiest(seen: list[Seen], seconds: float) -> int:
    """The most requests that arrived within any window of this length."""
    times = sorted(each.at for each in seen)
    return max(sum(start <= at <= start + seconds for at in times) for start in times)


@pytest.mark.rest
def test_two_dispatchers_together_keep_the_rate(world: World, tmp_path: Path) -> None:
    world.add_endpoint(rate_per_second=RATE)
    world.write(*(f"m_{n % 50}" for n in range(120)))
    with (
        dispatching(world.dsn, tmp_path / "one") as one,
        dispatching(world.dsn, tmp_path / "other") as other,
    ):
        eventually(lambda: all(lane.delivered == lane.last for lane in world.lanes().values()))
        eventually(lambda: len(world.receiver.seen) == 120)
        assert one.lines("attempt")
        assert other.lines("attempt")
    for window in (0.1, 1.0, 2.0, 4.0):
        # The machine's own delays may bring what was sent apart together: a tenth of a second's.
        late = BEGIN_SECONDS + 0.1
        assert busiest(world.receiver.seen, window) <= sustained(RATE) * (window + late) + 1
    begin, end = world.receiver.seen[0].at, max(seen.at for seen in world.receiver.seen)
    assert sustained(RATE) * (end - begin) * 1.05 >= 120 - RATE


@pytest.mark.rest
async def test_entries_that_were_not_sent_are_paid_back(world: World, store: PostgresStore) -> None:
    await world.routed(store, *(f"m_{n}" for n in range(60)), rate_per_second=230)
    began = time.monotonic()
    first = list((await store.claim(wanted(1), 0)).lanes)
    assert entries_of(first) == 10
    more = entries_of(list((await store.claim(wanted(1), 0)).lanes))
    assert more <= 1 + 200 * (time.monotonic() - began)
    await store.settle([release(lane) for lane in first], repeated=False)
    assert 9 <= entries_of(list((await store.claim(wanted(1), 0)).lanes)) <= 10


@pytest.mark.rest
async def test_claim_says_when_the_rate_allows_more(world: World, store: PostgresStore) -> None:
    world.add_endpoint(URL, rate_per_second=1)
    free = await world.routed(store, "m_1", "m_2", name="free")
    first = await store.claim(wanted(1), seconds())
    assert (len(first.lanes), first.paced, first.again_seconds) == (1, {1: 1}, None)
    again = await store.claim(wanted(1), seconds())
    assert (again.lanes, again.paced) == ([], {1: 0})
    assert again.again_seconds is not None
    assert 0 < again.again_seconds <= 1 / sustained(1)
    other = await store.claim(ClaimRequest({free: 9}, uuid4(), 30, 8), seconds())
    assert (len(other.lanes), other.paced, other.again_seconds) == (2, {}, None)


@pytest.mark.rest
async def test_paced_lane_is_begun_soon_or_given_back(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", rate_per_second=10)
    began = seconds()
    (lane,) = (await store.claim(wanted(1), began)).lanes
    longest = BEGIN_SECONDS + 2.0 + 1.0
    assert began + longest < lane.trusted_until <= seconds() + longest
    assert release(lane).trusted_until == began + 30


@pytest.mark.rest
async def test_retry_after_holds_its_endpoint_only(world: World, store: PostgresStore) -> None:
    world.add_endpoint(URL)
    free = await world.routed(store, "m_1", "m_2", "m_3", name="free")
    claimed = (await store.claim(wanted(1, 2), 0)).lanes
    results = []
    for lane, asked in zip(claimed, (3600.0, 60.0), strict=True):
        head = lane.entries[0]
        tried = Attempt(
            head.sequence, 1, head.key, Outcome.THROTTLED, 429, 3, None, None, None, asked
        )
        results.append(settle(lane, [tried], PACED, draw=0.5))
    settled = await store.settle(results, repeated=False)
    assert [each.paced is not None and each.paced.holds for each in settled].count(True) == 1
    claim = await store.claim(wanted(1), 0)
    assert (claim.lanes, claim.held) == ([], (1,))
    assert not await store.is_pending([1])
    (row,) = world.db.execute(
        "SELECT held_until - now() BETWEEN '59 min' AND '60 min', held_by"
        " FROM holdfast.endpoint_pace WHERE endpoint_id = 1"
    ).fetchall()
    assert row == (True, "answered 429 with Retry-After")
    assert len((await store.claim(ClaimRequest({free: 9}, uuid4(), 30, 8), 0)).lanes) == 3


@pytest.mark.rest
def test_five_endpoints_that_hang_cost_a_healthy_one_nothing(world: World) -> None:
    with webhooks.listening() as hanging:
        hanging.script = lambda _seen: webhooks.silence
        for number in range(5):
            world.add_endpoint(hanging.url, name=f"hangs_{number}", total_timeout_ms=30_000)
        world.write(*(f"m_{n}" for n in range(200)))
        with world.dispatching("--concurrency", "24", "--stop-seconds", "1"):
            eventually(lambda: hanging.busiest >= 20)
            healthy = world.add_endpoint(name="healthy")
            for number in range(50):
                world.write(f"late_{number}")
                eventually(lambda: len(world.receiver.seen) > number, seconds=20)  # noqa: B023
            assert hanging.busiest <= 24
    assert len(world.lanes(healthy)) == 50


@pytest.mark.rest
def test_rate_used_up_for_an_hour_is_claimed_within_seconds(world: World) -> None:
    """As after a clock that was set back; a replay's rate, too."""
    world.add_endpoint(rate_per_second=RATE)
    world.write("m_1")
    world.db.execute("UPDATE holdfast.endpoint_pace SET paid_until = now() + interval '1 hour'")
    with world.dispatching():
        eventually(lambda: len(world.receiver.seen) == 1, 20)
        eventually(lambda: world.lanes()["m_1"].delivered == 1)
        applied(world.dsn, DELIVERED, rate=1)
        world.db.execute("UPDATE holdfast.replay SET paid_until = now() + interval '1 hour'")
        eventually(lambda: len(world.receiver.seen) == 2, 20)
    assert world.receiver.sequences("m_1") == [1, 1]
