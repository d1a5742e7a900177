"""When a loop looks again of its own accord."""

import asyncio
from types import SimpleNamespace
from typing import Any

from dispatcher.core.values import Claim, Lane
from dispatcher.flow import Flow
from dispatcher.holds import Holds
from dispatcher.loops import Steps

ENDPOINTS: Any = SimpleNamespace(
    ready={1: SimpleNamespace(endpoint=SimpleNamespace(concurrency=8))}, lease_seconds=30.0
)


async def _never(_lane: Lane) -> bool:
    return False


async def _rings(claim: Claim) -> bool:
    """Return whether a look follows a claim that came back with this, before any loop would."""
    rung = asyncio.Event()

    async def claims(*_: object) -> Claim:
        return claim

    store: Any = SimpleNamespace(claim=claims)
    unused: Any = None
    flow = Flow(8, 8, send=_never, room=rung.set, crashed=lambda _: None)
    steps = Steps(store, ENDPOINTS, flow, unused, unused, entries_per_lane=8, holds=Holds())
    assert not await steps.claim()
    assert not rung.is_set()
    try:
        async with asyncio.timeout(60 if claim.again_seconds is not None else 0.05):
            await rung.wait()
    except TimeoutError:
        return False
    return True


def test_loop_looks_again_when_a_rate_allows_more_and_only_then() -> None:
    assert asyncio.run(_rings(Claim((), (), paced={1: 0}, again_seconds=0.01)))
    assert not asyncio.run(_rings(Claim((), (), paced={1: 5})))
