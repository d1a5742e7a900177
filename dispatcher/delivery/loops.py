"""The steps that a dispatcher takes over and over. Each says whether it found something to do."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from uuid import uuid4

from dispatcher.delivery.endpoints import Endpoints
from dispatcher.delivery.flow import Flow
from dispatcher.delivery.holds import Holds
from dispatcher.delivery.ports import Instance, Store
from dispatcher.delivery.rules.values import Claim, Wanted
from dispatcher.delivery.telemetry.log import Line, Telemetry
from dispatcher.shared.clock import seconds
from dispatcher.shared.errors import DrainFailedError, StoreUnavailableError
from sink.contract.failpoints import failpoint

BATCHES = 256
"""Batches that one routing transaction takes, if they are small."""

RESCUES = 256
"""Expired leases that one rescue takes."""

SKEW_SECONDS = 30
"""How far this host's clock may be from the database's: receivers allow a signature 300 s."""

DRAIN_OUTAGE_SECONDS = 60
"""How long a drain waits for a database that is away."""


class Steps:
    """What the loops do, on shared parts."""

    def __init__(
        self,
        store: Store,
        endpoints: Endpoints,
        flow: Flow,
        telemetry: Telemetry,
        instance: Instance,
        *,
        entries_per_lane: int,
        holds: Holds,
    ) -> None:
        self._holds = holds
        self._store = store
        self._endpoints = endpoints
        self._flow = flow
        self._telemetry = telemetry
        self._instance = instance
        self._entries_per_lane = entries_per_lane
        self._answered = seconds()
        self._asked = False
        self._news = self._had_news = False

    def hear_of_news(self) -> bool:
        """Take down that a batch was written; returns whether the next claim routes it as well.

        That is quicker, and done while nothing else is under way. Not twice in a row, or what
        became due meanwhile would wait as long as batches keep coming.
        """
        self._news = not self._flow.held and not self._had_news
        return self._news

    async def route(self, routed: Callable[[], None]) -> bool:
        """Turn new batches into lanes; `routed` hears that there are some."""
        result = await self._store.route(BATCHES)
        if result.lanes:
            routed()
        return result.batches > 0

    async def claim(self, look_for_batches: Callable[[], None]) -> bool:
        """Take lanes as far as there is room for them.

        `look_for_batches` hears when there was news, and routing it is left to `route`.
        """
        news, self._news = self._news, False
        counts = {
            id_: count
            for id_, count in self._flow.wanted(self._endpoints.ready).items()
            if not self._holds.waits(id_)
        }
        if not counts:
            if news:
                look_for_batches()
            return False
        started, lease = seconds(), self._endpoints.lease_seconds
        wanted = Wanted(counts, uuid4(), lease, self._entries_per_lane)
        self._had_news = news
        if not news:
            return self._take(await self._store.claim(wanted, started), counts)
        done = await self._store.route_and_claim(wanted, started)
        if done is None or not done[0].batches:
            look_for_batches()
        if done is None:
            return False
        if done[0].lanes and not done[1].lanes:
            self._flow.look()
        return self._take(done[1], counts)

    def _take(self, claim: Claim, wanted: Mapping[int, int]) -> bool:
        """Send what came; returns whether anything did."""
        for gap in claim.gaps:
            self._telemetry.gap(self._endpoints.name(gap.endpoint_id), gap)
        self._holds.found(claim.held)
        for id_ in claim.closed:
            self._telemetry.breaker_closed(self._endpoints.name(id_))
        if claim.lanes:
            failpoint("D2")
        self._flow.take(claim.lanes, wanted, claim.paced)
        if not claim.lanes and claim.again_seconds is not None:
            # Looking at times of its own, a loop would be late for what a rate allows.
            asyncio.get_running_loop().call_later(claim.again_seconds, self._flow.look)
        return bool(claim.lanes)

    async def rescue(self) -> bool:
        """Take back what dispatchers left behind that died or lost their lease."""
        rescued = await self._store.rescue(RESCUES)
        for each in rescued:
            self._telemetry.rescued(self._endpoints.name(each.endpoint_id), each)
        return bool(rescued)

    async def load(self) -> bool:
        """Load endpoints and secrets again; says so where somebody asked for it."""
        asked = self._asked
        await self._endpoints.refresh()
        if asked:
            self._asked = False
            self._telemetry.say(Line.RELOADED, endpoints=len(self._endpoints.ready))
        return False

    def ask_for_load(self) -> None:
        """Have the next load say that it was asked for."""
        self._asked = True

    async def beat(self, *, draining: bool = False) -> bool:
        """Show that this process lives, and compare the clocks."""
        at = await self._store.beat(self._instance, self._flow.sending, draining=draining)
        skew = (datetime.now(UTC) - at).total_seconds()
        if abs(skew) > SKEW_SECONDS:
            self._telemetry.warn(Line.CLOCK_SKEW, seconds=round(skew))
        return False

    async def drain(self, drained: Callable[[], None]) -> bool:
        """Look whether everything that can be sent now is sent; `drained` hears of it."""
        if self._flow.held:
            return False
        try:
            pending = await self._store.is_pending(self._endpoints.ready.keys())
        except StoreUnavailableError as error:
            if seconds() - self._answered > DRAIN_OUTAGE_SECONDS:
                raise DrainFailedError(str(error)) from None
            raise
        self._answered = seconds()
        if not pending and not self._flow.held:
            drained()
        return False
