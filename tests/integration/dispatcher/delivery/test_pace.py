"""Rate and Retry-After of an endpoint, over all dispatchers; and what one endpoint costs others."""

import time
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Lane, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS, sustained
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import DELIVERED, applied
from tests.support.dispatch.dispatching import dispatching
from tests.support.dispatch.webhooks import Seen
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


URL = "http://127.0.0.1:1/"
ENDPOINT = Endpoint(1, "e", URL, (), 1, 2, 64, (5,) * 10, OrderPolicy.STOP)
RATE = 20


def wanted(count: int = 100, entries: int = 8) -> Wanted:
    return Wanted({1: count}, uuid4(), 30, entries)


def entries_of(claimed: list[Lane]) -> int:
    return sum(len(lane.entries) for lane in claimed)


def busiest(seen: list[Seen], seconds: float) -> int:
    """The most requests that arrived within any window of this length."""
    times = sorted(each.at for each in seen)
    return max(sum(start <= at <= start + seconds for at in times) for start in times)


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


async def test_entries_that_were_not_sent_are_paid_back(world: World, store: PostgresStore) -> None:
    await world.routed(store, *(f"m_{n}" for n in range(60)), rate_per_second=230)
    began = time.monotonic()
    first = list((await store.claim(wanted(), 0)).lanes)
    assert entries_of(first) == 10
    more = entries_of(list((await store.claim(wanted(), 0)).lanes))
    assert more <= 1 + 200 * (time.monotonic() - began)
    await store.settle([release(lane) for lane in first], repeated=False)
    assert 9 <= entries_of(list((await store.claim(wanted(), 0)).lanes)) <= 10


async def test_claim_says_when_the_rate_allows_more(world: World, store: PostgresStore) -> None:
    world.add_endpoint(URL, rate_per_second=1)
    free = await world.routed(store, "m_1", "m_2", name="free")
    first = await store.claim(wanted(), seconds())
    assert (len(first.lanes), first.paced, first.again_seconds) == (1, {1: 1}, None)
    again = await store.claim(wanted(), seconds())
    assert (again.lanes, again.paced) == ([], {1: 0})
    assert again.again_seconds is not None
    assert 0 < again.again_seconds <= 1 / sustained(1)
    other = await store.claim(Wanted({free: 9}, uuid4(), 30, 8), seconds())
    assert (len(other.lanes), other.paced, other.again_seconds) == (2, {}, None)


async def test_paced_lane_is_begun_soon_or_given_back(world: World, store: PostgresStore) -> None:
    await world.routed(store, "m_1", rate_per_second=10)
    began = seconds()
    (lane,) = (await store.claim(wanted(), began)).lanes
    longest = BEGIN_SECONDS + 2.0 + 1.0
    assert began + longest < lane.trusted_until <= seconds() + longest
    assert release(lane).trusted_until == began + 30


async def test_retry_after_holds_its_endpoint_only(world: World, store: PostgresStore) -> None:
    world.add_endpoint(URL)
    free = await world.routed(store, "m_1", "m_2", "m_3", name="free")
    claimed = (await store.claim(wanted(2), 0)).lanes
    results = []
    for lane, asked in zip(claimed, (3600.0, 60.0), strict=True):
        head = lane.entries[0]
        tried = Attempt(
            head.sequence, 1, head.key, Outcome.THROTTLED, 429, 3, None, None, None, asked
        )
        results.append(settle(lane, [tried], ENDPOINT, draw=0.5))
    settled = await store.settle(results, repeated=False)
    assert [each.paced is not None and each.paced.holds for each in settled].count(True) == 1
    claim = await store.claim(wanted(), 0)
    assert (claim.lanes, claim.held) == ([], (1,))
    assert not await store.is_pending([1])
    (row,) = world.db.execute(
        "SELECT held_until - now() BETWEEN '59 min' AND '60 min', held_by"
        " FROM holdfast.endpoint_pace WHERE endpoint_id = 1"
    ).fetchall()
    assert row == (True, "answered 429 with Retry-After")
    assert len((await store.claim(Wanted({free: 9}, uuid4(), 30, 8), 0)).lanes) == 3


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
