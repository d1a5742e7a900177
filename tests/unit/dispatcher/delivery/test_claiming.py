"""How many lanes a process claims and when, which it sends at once, and which wait for a hold."""

import asyncio
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.delivery import loops
from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Ready
from holdfast.dispatcher.delivery.flow import Flow
from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.loops import Steps
from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.values import (
    Attempt,
    Claim,
    Entry,
    Lane,
    Routed,
    Settlement,
)
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target
from holdfast.sink.contract.states import OrderPolicy, Outcome


def ready(endpoint_id: int, concurrency: int) -> Ready:
    endpoint = Endpoint(
        endpoint_id, f"e{endpoint_id}", "https://x/", (), 1, 2, concurrency, (5,), OrderPolicy.STOP
    )
    return Ready(endpoint, Target(endpoint_id, "https://x/", (), 1, 1), (), Signer(()))


def lanes(endpoint_id: int, count: int) -> list[Lane]:
    return [Lane(endpoint_id, subject, UUID(int=1), 0, (), 100.0) for subject in range(count)]


class Bench:
    """A flow whose sends wait until the test ends them."""

    def __init__(self, concurrency: int = 8, claim_lanes: int = 100) -> None:
        self.started: list[Lane] = []
        self.faults: list[BaseException] = []
        self.rings = 0
        self.now = 1000.0
        self._ends: list[asyncio.Future[bool]] = []
        self.flow = Flow(
            concurrency,
            claim_lanes,
            send=self._send,
            room=self._ring,
            crashed=self.faults.append,
            clock=lambda: self.now,
        )

    async def _send(self, lane: Lane) -> bool:
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        self.started.append(lane)
        return await end

    def _ring(self) -> None:
        self.rings += 1

    async def settle(
        self, count: int, error: Exception | None = None, *, tried: bool = True
    ) -> None:
        await asyncio.sleep(0)
        for _ in range(count):
            lane = self.started[len(self.started) - len(self._ends)]
            end = self._ends.pop(0)
            if error is None:
                end.set_result(tried)
                self.flow.settled(lane.endpoint_id)
            else:
                end.set_exception(error)
        for _ in range(4):
            await asyncio.sleep(0)


def room(bench: Bench) -> int:
    return bench.flow.claimable({1: ready(1, 4)})[1]


async def test_endpoint_takes_up_no_more_than_its_share() -> None:
    bench = Bench()
    both = {1: ready(1, 64), 2: ready(2, 3)}
    assert bench.flow.claimable(both) == {1: 4, 2: 3}
    bench.flow.take(lanes(1, 4), {1: 4})
    assert bench.flow.claimable(both) == {2: 3}
    assert bench.flow.claimable({1: ready(1, 64)}) == {1: 4}


async def test_lanes_are_claimed_ahead_only_as_fast_as_they_are_finished() -> None:
    bench = Bench()
    one = {1: ready(1, 4)}
    wanted = bench.flow.claimable(one)
    assert wanted == {1: 4}
    bench.flow.take(lanes(1, 4), wanted)
    assert bench.flow.claimable(one) == {}
    await bench.settle(3)
    assert bench.flow.claimable(one) == {1: 6}
    bench.flow.take(lanes(1, 6), {1: 6})
    await asyncio.sleep(0)
    assert bench.flow.sending == 4
    assert bench.flow.held == 7
    bench.now += 2
    assert bench.flow.claimable(one) == {}


async def test_lanes_that_were_given_back_untried_call_for_no_more() -> None:
    bench = Bench()
    one = {1: ready(1, 4)}
    bench.flow.take(lanes(1, 4), bench.flow.claimable(one))
    await bench.settle(3, tried=False)
    assert bench.flow.claimable(one) == {1: 3}


async def test_waiting_lanes_defer_a_claim_that_would_bring_few() -> None:
    bench = Bench()
    one = {1: ready(1, 8)}
    bench.flow.claimable(one)
    bench.flow.take(lanes(1, 8), {1: 8})
    await bench.settle(8)
    bench.flow.take(lanes(1, 14), {1: 14})
    # Of 16, which it may hold, 2 are free; then 8.
    assert bench.flow.claimable(one) == {}
    assert bench.rings == 8
    for _ in range(6):
        bench.flow.settled(1)
    assert bench.flow.claimable(one) == {1: 8}


async def test_claim_is_no_larger_than_allowed() -> None:
    bench = Bench(concurrency=6, claim_lanes=5)
    assert bench.flow.claimable({1: ready(1, 64), 2: ready(2, 64)}) == {1: 3, 2: 2}


async def test_small_claims_rotate_over_all_endpoints() -> None:
    """Also to one without lanes, while another has none due."""
    bench = Bench(concurrency=256, claim_lanes=4)
    both = {1: ready(1, 64), 2: ready(2, 64)}
    assert [bench.flow.claimable(both) for _ in range(4)] == [{1: 4}, {2: 4}, {1: 4}, {2: 4}]
    bench.flow.take(lanes(2, 4), {2: 4})
    assert [bench.flow.claimable(both) for _ in range(2)] == [{1: 4}, {2: 4}]


async def test_finished_lane_calls_for_more_only_when_more_may_be_due() -> None:
    bench = Bench()
    bench.flow.claimable({1: ready(1, 2)})
    bench.flow.take(lanes(1, 1), {1: 2})
    await bench.settle(1)
    assert bench.rings == 0
    bench.flow.take(lanes(1, 2), {1: 2})
    await bench.settle(1)
    assert bench.rings == 1


async def test_closing_gives_back_what_was_not_begun() -> None:
    bench = Bench()
    bench.flow.claimable({1: ready(1, 2)})
    bench.flow.take(lanes(1, 5), {1: 5})
    await asyncio.sleep(0)
    assert [lane.subject_id for lane in bench.flow.close()] == [2, 3, 4]
    await bench.settle(2)
    await bench.flow.quiet()
    assert len(bench.started) == 2
    assert bench.flow.claimable({1: ready(1, 2)}) == {}


async def test_fault_while_sending_is_reported_and_frees_its_slot() -> None:
    bench = Bench()
    bench.flow.claimable({1: ready(1, 1)})
    bench.flow.take(lanes(1, 2), {1: 1})
    fault = ValueError("bug")
    await bench.settle(1, fault)
    assert bench.faults == [fault]
    assert (bench.flow.held, bench.flow.sending) == (1, 1)
    await bench.settle(1)


async def test_rate_limits_claims_ahead_to_a_tenth_of_a_second() -> None:
    bench = Bench()
    assert room(bench) == 4
    bench.flow.take(lanes(1, 40), {1: 40})
    for _ in range(10):
        await bench.settle(4)
    assert room(bench) == 4 + 40
    bench.flow.take([], {1: 1}, {1: 1})
    assert room(bench) == 4 + 4
    bench.flow.take([], {1: 1})
    assert room(bench) == 4 + 40


async def nothing_tried(_lane: Lane) -> bool:
    return False


def idle_flow() -> Flow:
    return Flow(256, 64, send=nothing_tried, room=lambda: None, crashed=lambda _: None)


def test_half_of_what_is_free_can_be_lent() -> None:
    given = idle_flow()
    assert given.spare({1: ready(1, 8)}) == {1: 4}
    for _ in range(4):
        given.lend(1)
    assert given.spare({1: ready(1, 8)}) == {}
    given.returned(1)
    assert given.spare({1: ready(1, 8)}) == {1: 1}
    assert idle_flow().spare({1: ready(1, 1)}) == {1: 1}


def test_nothing_is_lent_while_more_lanes_may_be_due() -> None:
    given = idle_flow()
    wanted = given.claimable({1: ready(1, 8)})
    given.take([], {1: 0})
    assert given.spare({1: ready(1, 8)}) == {}
    given.take([], wanted)
    assert given.spare({1: ready(1, 8)}) == {1: 4}


async def test_nothing_is_lent_while_a_rate_is_used_up_by_lanes() -> None:
    given = idle_flow()
    wanted = given.claimable({1: ready(1, 8)})
    given.take([lanes(1, 1)[0]], wanted, {1: 1})
    await given.quiet()
    given.settled(1)
    assert given.spare({1: ready(1, 8)}) == {}
    # That the rate allowed none says nothing about what is due.
    given.take([], wanted, {1: 0})
    assert given.spare({1: ready(1, 8)}) == {}
    given.take([], wanted, {1: 2})
    assert given.spare({1: ready(1, 8)}) == {1: 4}


def test_closed_flow_lends_nothing() -> None:
    given = idle_flow()
    given.close()
    assert given.spare({1: ready(1, 8)}) == {}


ENDPOINTS: Any = SimpleNamespace(
    ready={1: SimpleNamespace(endpoint=SimpleNamespace(concurrency=8))}, lease_seconds=30.0
)


async def _never(_lane: Lane) -> bool:
    return False


async def _claims_again(claim: Claim) -> bool:
    """Return whether another claim is requested after this one, before any loop would."""
    rung = asyncio.Event()

    async def claims(*_: object) -> Claim:
        return claim

    store: Any = SimpleNamespace(claim=claims)
    unused: Any = None
    flow = Flow(8, 8, send=_never, room=rung.set, crashed=lambda _: None)
    steps = _steps(store, flow)
    assert not await steps.claim(unused)
    assert not rung.is_set()
    try:
        async with asyncio.timeout(60 if claim.again_seconds is not None else 0.05):
            await rung.wait()
    except TimeoutError:
        return False
    return True


def test_loop_claims_again_when_a_rate_allows_more_and_only_then() -> None:
    assert asyncio.run(_claims_again(Claim((), (), paced={1: 0}, again_seconds=0.01)))
    assert not asyncio.run(_claims_again(Claim((), (), paced={1: 5})))


class _Store:
    """Returns scripted results and records its calls."""

    def __init__(self, *done: tuple[Routed, Claim] | None) -> None:
        self.calls: list[str] = []
        self._done = list(done)

    async def claim(self, *_: object) -> Claim:
        self.calls.append("claim")
        return NOTHING

    async def route_and_claim(self, *_: object) -> tuple[Routed, Claim] | None:
        self.calls.append("route and claim")
        return self._done.pop(0)


def _steps(store: _Store, flow: Flow, holds: Holds | None = None) -> Steps:
    unused: Any = None
    given: Any = store
    holds = holds or Holds()
    return Steps(
        given,
        ENDPOINTS,
        flow,
        unused,
        unused,
        entries_per_lane=8,
        holds=holds,
        clock=DatabaseClock(),
        health=Health(),
    )


def _flow(requests: list[str] | None = None, *, concurrency: int = 8) -> Flow:
    def request() -> None:
        (requests if requests is not None else []).append("claim")

    return Flow(concurrency, 8, send=_never, room=request, crashed=lambda _: None)


NOTHING = Claim((), ())


async def test_announced_batches_are_claimed_at_once_for_a_second_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(loops, "seconds", lambda: now)
    store, routes = _Store((Routed(1, 0), NOTHING), (Routed(1, 0), NOTHING)), list[str]()
    steps = _steps(store, _flow())

    async def claim() -> None:
        await steps.claim(lambda: routes.append("route"))

    for _ in range(2):
        assert steps.announce_batch()
        await claim()
        now += loops.ROUTED_SECONDS / 2
    assert not steps.announce_batch(), "what became due meanwhile comes first"
    await claim()
    assert store.calls == ["route and claim", "route and claim", "claim"]
    now += 100 * loops.ROUTED_SECONDS
    assert steps.announce_batch(), "however long ago the last claim was"
    assert routes == []


async def test_unclaimable_announced_batch_is_left_to_routing() -> None:
    for done in (None, (Routed(0, 0), NOTHING)):
        store, routes = _Store(done), list[str]()
        steps = _steps(store, _flow())
        assert steps.announce_batch()
        assert not await steps.claim(lambda: routes.append("route"))  # noqa: B023 - called here
        assert routes == ["route"]


async def test_announced_batch_without_a_free_slot_is_left_to_routing() -> None:
    store, flow, routes = _Store(), _flow(concurrency=1), list[str]()
    steps = _steps(store, flow)
    assert steps.announce_batch()
    flow.lend(1)
    assert not steps.announce_batch(), "something is under way"
    steps._announced = True
    assert not await steps.claim(lambda: routes.append("route"))
    assert (store.calls, routes) == ([], ["route"])


async def test_lanes_of_an_unknown_priority_are_claimed_at_once() -> None:
    requests: list[str] = []
    steps = _steps(_Store((Routed(1, 2, [[1, 0]]), NOTHING)), _flow(requests))
    assert steps.announce_batch()
    await steps.claim(lambda: None)
    assert requests == ["claim"]


async def test_endpoint_about_to_be_held_is_not_claimed_until_stored() -> None:
    """Its lanes would be released and claimed again, as fast as the database answers."""
    endpoint = Endpoint(1, "e", "https://x/", (), 1, 2, 8, (5,), OrderPolicy.STOP)
    entry = Entry(1, 1, UUID(int=7), datetime(2026, 11, 2, tzinfo=UTC), None, b"{}")
    asking = Attempt(1, 1, UUID(int=7), Outcome.THROTTLED, 429, 1, None, None, None, 30)
    lane = Lane(1, 1, UUID(int=1), 0, (entry,), 100.0)
    result = settle(lane, [asking], endpoint, draw=0.5)
    store, holds = _Store(), Holds()
    steps = _steps(store, _flow(), holds)
    holds.tried(result, endpoint)
    assert not await steps.claim(lambda: None)
    assert store.calls == []
    holds.stored(result)
    await steps.claim(lambda: None)
    assert store.calls == ["claim"]


NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
ENDPOINT = Endpoint(1, "e", "https://x/", (), 1, 2, 64, (5,), OrderPolicy.STOP, breaker_threshold=3)


def lane(endpoint_id: int, claimed_at: float) -> Lane:
    return Lane(endpoint_id, 1, UUID(int=1), 0, (), 100.0, claimed_at=claimed_at)


def test_only_lanes_claimed_before_a_hold_are_not_begun() -> None:
    holds = Holds(clock=lambda: 50.0)
    assert holds.allow(lane(1, 0.0))
    holds.mark_held([1])
    assert not holds.allow(lane(1, 49.0))
    assert not holds.allow(lane(1, 50.0))
    assert holds.allow(lane(1, 50.1))
    assert holds.allow(lane(2, 49.0))


def attempt(outcome: Outcome, *, asked: int | None = None, ours: bool = False) -> Attempt:
    return Attempt(1, 1, UUID(int=7), outcome, 503, 1, None, None, None, asked, ours)


def result(*attempts: Attempt) -> Settlement:
    entries = tuple(Entry(1, 1, UUID(int=7), NOW, None, b"{}") for _ in attempts)
    return settle(replace(lane(1, 0.0), entries=entries), attempts, ENDPOINT, draw=0.5)


FAILURE = result(attempt(Outcome.FAILED))
ANSWERS = (result(attempt(Outcome.DELIVERED)), result(attempt(Outcome.REJECTED)))


def after(*settlements: Settlement, endpoint: Endpoint = ENDPOINT) -> Holds:
    holds = Holds()
    for settlement in settlements:
        holds.tried(settlement, endpoint)
    return holds


def test_failures_that_open_the_breaker_wait_until_stored() -> None:
    holds = after(FAILURE, FAILURE)
    assert holds.allow(lane(1, 1.0))
    holds.stored(FAILURE)
    holds.tried(FAILURE, ENDPOINT)
    assert not holds.allow(lane(1, 1.0))
    assert holds.allow(lane(2, 1.0))
    assert holds.will_hold(1)
    assert not holds.stored(FAILURE)
    assert not holds.allow(lane(1, 1.0)), "the third one is not stored"
    assert holds.stored(FAILURE)
    assert not holds.will_hold(1)
    assert holds.allow(lane(1, 1.0)), "the database has the say"
    holds.tried(FAILURE, ENDPOINT)
    assert holds.allow(lane(1, 1.0)), "it did not open: failures count from 0"


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_in_between_ends_a_row_of_failures(answer: Settlement) -> None:
    holds = after(FAILURE, FAILURE, answer, FAILURE, FAILURE)
    assert holds.allow(lane(1, 1.0))
    holds.tried(FAILURE, ENDPOINT)
    assert not holds.allow(lane(1, 1.0))


def test_delivery_before_a_failure_ends_the_failure_streak() -> None:
    later = result(attempt(Outcome.DELIVERED), attempt(Outcome.FAILED))
    assert after(FAILURE, FAILURE, later).allow(lane(1, 1.0))


def test_own_faults_and_disabled_breakers_hold_nothing() -> None:
    ours = result(attempt(Outcome.FAILED, ours=True))
    assert after(FAILURE, FAILURE, ours).allow(lane(1, 1.0))
    never = replace(ENDPOINT, breaker_threshold=0)
    assert after(*[FAILURE] * 20, endpoint=never).allow(lane(1, 1.0))


@pytest.mark.parametrize(
    "last", [attempt(Outcome.THROTTLED, asked=30), attempt(Outcome.GONE)], ids=["429", "410"]
)
def test_receiver_asking_for_time_is_paused_at_once(last: Attempt) -> None:
    asking = result(last)
    holds = after(asking)
    assert not holds.allow(lane(1, 1.0))
    holds.stored(asking)
    assert holds.allow(lane(1, 1.0)), "the database has the say"


def test_throttled_without_a_time_is_one_failure() -> None:
    assert after(result(attempt(Outcome.THROTTLED))).allow(lane(1, 1.0))


@given(st.lists(st.sampled_from([FAILURE, *ANSWERS, None]), max_size=40))
def test_nothing_is_held_once_everything_is_stored(story: list[Settlement | None]) -> None:
    """None: the first of what is under way is stored."""
    holds, under_way = Holds(), deque[Settlement]()
    for each in story:
        if each is not None:
            holds.tried(each, ENDPOINT)
            under_way.append(each)
        elif under_way:
            holds.stored(under_way.popleft())
    for each in under_way:
        holds.stored(each)
    assert holds.allow(lane(1, 1.0))
