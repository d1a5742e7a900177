"""The steps of a dispatcher's loops. Each returns whether it found work."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from uuid import uuid4

from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Endpoints
from holdfast.dispatcher.delivery.flow import Flow
from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.values import Beat, Claim, ClaimRequest, Instance
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.delivery.telemetry.observer import Observer
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import DrainFailedError, StoreUnavailableError
from holdfast.sink.contract.failpoints import failpoint

BATCHES = 256
"""Maximum number of small batches that one transaction routes."""

RESCUES = 256
"""Maximum number of expired leases that one rescue takes."""

SKEW_SECONDS = 30
"""Offset of this host's clock from the database's that is logged."""

ROUTED_SECONDS = 1.0
"""How long in a row batches are routed with a claim, which finds only what became due lately."""

DRAIN_OUTAGE_SECONDS = 60
"""How long a drain waits for an unavailable database."""


class Steps:
    """The steps, on parts that the loops share."""

    def __init__(
        self,
        store: PostgresStore,
        endpoints: Endpoints,
        flow: Flow,
        telemetry: Telemetry,
        instance: Instance,
        *,
        entries_per_lane: int,
        holds: Holds,
        clock: DatabaseClock,
        health: Health,
        observer: Observer | None = None,
    ) -> None:
        self._clock = clock
        self._health = health
        self._holds = holds
        self._observer = observer
        self._store = store
        self._endpoints = endpoints
        self._flow = flow
        self._telemetry = telemetry
        self._instance = instance
        self._entries_per_lane = entries_per_lane
        self._answered = seconds()
        self._load_requested = False
        self._announced = False
        self._routing_since: float | None = None

    def announce_batch(self) -> bool:
        """Record that a batch was written; returns whether the next claim also routes it.

        That is faster, and done while no lane is held. Not for longer than a second in a row: lanes
        that became due in the meantime would wait as long as batches keep coming.
        """
        since = self._routing_since
        is_early = since is None or seconds() - since < ROUTED_SECONDS
        self._announced = is_early and not self._flow.held
        return self._announced

    async def route(self, routed: Callable[[], None]) -> bool:
        """Turn new batches into lanes; calls `routed` if there are any."""
        result = await self._store.route(BATCHES)
        if result.lanes:
            routed()
        return result.batches > 0

    async def claim(self, request_route: Callable[[], None]) -> bool:
        """Claim lanes for the free slots, and start sending them; returns whether more may be due.

        Calls `request_route` where a batch was announced and `route` has to route it.
        """
        announced, self._announced = self._announced, False
        counts = {
            id_: count
            for id_, count in self._flow.claimable(self._endpoints.ready).items()
            if not self._holds.will_hold(id_)
        }
        if not counts or self._clock.fault:
            if announced:
                request_route()
            return False
        started, lease = seconds(), self._endpoints.lease_seconds
        request = ClaimRequest(counts, uuid4(), lease, self._entries_per_lane)
        self._routing_since = (self._routing_since or started) if announced else None
        if not announced:
            return self._take(await self._store.claim(request, started), counts, started)
        done = await self._store.route_and_claim(request, started)
        if done is None or not done[0].batches:
            request_route()
        if done is None:
            return False
        if done[0].lanes and not done[1].lanes:
            self._flow.request_claim()
        return self._take(done[1], counts, started)

    def _take(self, claim: Claim, counts: Mapping[int, int], started: float) -> bool:
        """Start sending the claimed lanes; returns whether there are as many as were asked for."""
        if self._observer is not None:
            self._observer.claimed(claim, started)
        for gap in claim.gaps:
            self._telemetry.gap(self._endpoints.name(gap.endpoint_id), gap)
        self._holds.mark_held(claim.held)
        for id_ in claim.closed:
            self._telemetry.breaker_closed(self._endpoints.name(id_))
        if claim.lanes:
            failpoint("D2")
        self._flow.take(claim.lanes, counts, claim.paced)
        if not claim.lanes and claim.again_seconds is not None:
            # The regular interval is too long to use the full rate.
            asyncio.get_running_loop().call_later(claim.again_seconds, self._flow.request_claim)
        taken = Counter(lane.endpoint_id for lane in claim.lanes)
        return any(taken[id_] >= count for id_, count in counts.items())

    async def rescue(self) -> bool:
        """Release the lanes of dispatchers that crashed or outlived their lease."""
        rescued = await self._store.rescue(RESCUES)
        if self._observer is not None:
            self._observer.rescued(rescued)
        for each in rescued:
            self._telemetry.rescued(self._endpoints.name(each.endpoint_id), each)
        if rescued:
            self._flow.request_claim()
        return bool(rescued)

    async def load(self) -> bool:
        """Load endpoints, secrets and holds again; logs it where `request_load` was called."""
        requested = self._load_requested
        await self._endpoints.refresh()
        # A hold keeps back what is leased here; what is not is not claimed.
        on_hold = await self._store.lanes_on_hold() if self._flow.held else []
        self._holds.mark_subjects(on_hold)
        if requested:
            self._load_requested = False
            self._telemetry.info(Line.RELOADED, endpoints=len(self._endpoints.ready))
        return False

    def request_load(self) -> None:
        """Have the next load logged."""
        self._load_requested = True

    async def beat(self, *, draining: bool = False) -> Beat:
        """Record a heartbeat and compare the clocks; returns what there is to do."""
        began = seconds()
        beat = await self._store.beat(self._instance, self._flow.sending, draining=draining)
        self._clock.measured(beat.at, began)
        skew, fault = self._clock.skew_seconds, self._clock.fault
        if self._observer is not None:
            self._observer.beat(skew)
        self._health.clock(fault)
        if abs(skew) > SKEW_SECONDS:
            self._telemetry.warn(Line.CLOCK_SKEW, seconds=round(skew), claims=fault is None)
        return beat

    async def drain(self, drained: Callable[[], None]) -> bool:
        """Call `drained` if everything that can be sent now is sent."""
        if self._flow.held:
            return False
        if fault := self._clock.fault:
            raise DrainFailedError(fault)
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
