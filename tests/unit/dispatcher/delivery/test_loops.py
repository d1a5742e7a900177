"""When the claim loop claims again, and which claims also route."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.flow import Flow
from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.loops import Steps
from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Claim, Entry, Lane, Routed
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.sink.contract.states import OrderPolicy, Outcome

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


def test_announced_batch_is_routed_and_claimed_at_once_but_not_twice_in_a_row() -> None:
    async def work() -> None:
        store, routes = _Store((Routed(1, 0), NOTHING)), list[str]()
        steps = _steps(store, _flow())

        async def claim() -> None:
            await steps.claim(lambda: routes.append("route"))

        assert steps.announce_batch()
        await claim()
        assert not steps.announce_batch(), "what became due meanwhile comes first"
        await claim()
        await claim()
        assert store.calls == ["route and claim", "claim", "claim"]
        assert steps.announce_batch()
        assert routes == []

    asyncio.run(work())


def test_announced_batch_that_cannot_be_claimed_at_once_is_left_to_routing() -> None:
    async def work() -> None:
        for done in (None, (Routed(0, 0), NOTHING)):
            store, routes = _Store(done), list[str]()
            steps = _steps(store, _flow())
            assert steps.announce_batch()
            assert not await steps.claim(lambda: routes.append("route"))  # noqa: B023 - called here
            assert routes == ["route"]

    asyncio.run(work())


def test_announced_batch_without_a_free_slot_is_left_to_routing() -> None:
    async def work() -> None:
        store, flow, routes = _Store(), _flow(concurrency=1), list[str]()
        steps = _steps(store, flow)
        assert steps.announce_batch()
        flow.lend(1)
        assert not steps.announce_batch(), "something is under way"
        steps._announced = True
        assert not await steps.claim(lambda: routes.append("route"))
        assert (store.calls, routes) == ([], ["route"])

    asyncio.run(work())


def test_lanes_of_an_unknown_priority_are_claimed_at_once() -> None:
    async def work() -> None:
        requests: list[str] = []
        steps = _steps(_Store((Routed(1, 2, [[1, 0]]), NOTHING)), _flow(requests))
        assert steps.announce_batch()
        await steps.claim(lambda: None)
        assert requests == ["claim"]

    asyncio.run(work())


def test_endpoint_that_is_about_to_be_held_is_not_claimed_from_until_that_is_stored() -> None:
    """Its lanes would be released and claimed again, as fast as the database answers."""
    endpoint = Endpoint(1, "e", "https://x/", (), 1, 2, 8, (5,), OrderPolicy.STOP)
    entry = Entry(1, 1, UUID(int=7), datetime(2026, 11, 2, tzinfo=UTC), None, b"{}")
    asking = Attempt(1, 1, UUID(int=7), Outcome.THROTTLED, 429, 1, None, None, None, 30)
    lane = Lane(1, 1, UUID(int=1), 0, (entry,), 100.0)
    result = settle(lane, [asking], endpoint, draw=0.5)

    async def work() -> None:
        store, holds = _Store(), Holds()
        steps = _steps(store, _flow(), holds)
        holds.tried(result, endpoint)
        assert not await steps.claim(lambda: None)
        assert store.calls == []
        holds.stored(result)
        await steps.claim(lambda: None)
        assert store.calls == ["claim"]

    asyncio.run(work())
