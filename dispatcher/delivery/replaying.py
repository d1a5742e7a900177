"""The replay loop: claims items and sends them in slots that live lanes do not need.

It has its own sender and settler, because it settles items and not lanes.
"""

import asyncio
from dataclasses import replace
from uuid import uuid4

from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Endpoints
from holdfast.dispatcher.delivery.flow import Flow
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.replays import ReplayRequest
from holdfast.dispatcher.delivery.rules.values import Lane, Settlement
from holdfast.dispatcher.delivery.sender import RepeatCheck, Sender
from holdfast.dispatcher.delivery.settler import Settler
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.delivery.telemetry.observer import Observer
from holdfast.dispatcher.outbound.transport.transport import Transport
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.failpoints import failpoint

RESCUES = 256
"""Maximum number of expired leases that one rescue takes."""

RESCUE_SECONDS = 1.0
"""Minimum time between two rescues."""

IDLE_FACTOR = 10
"""Pause after a claim that found nothing, in multiples of the claim's time: it scans items that
wait for a retry, or behind one."""


class Replayer:
    """Claims, sends and settles the items of replays."""

    def __init__(
        self,
        store: PostgresStore,
        endpoints: Endpoints,
        transport: Transport,
        telemetry: Telemetry,
        flow: Flow,
        *,
        holds: Holds,
        clock: DatabaseClock,
        check_repeat: RepeatCheck | None,
        observer: Observer | None,
    ) -> None:
        """`flow` lends the slots, and requests a claim where a replay has made lanes due."""
        self._store = store
        self._endpoints = endpoints
        self._telemetry = telemetry
        self._flow = flow
        self._holds = holds
        self._clock = clock
        self._observer = observer
        self._settler = Settler(
            store.settle_replays,
            endpoints,
            telemetry,
            done=lambda _: None,
            due=lambda: None,
            retries=lambda _: None,
            holds=holds,
            observe=None if observer is None else observer.replays_settled,
        )
        self._sender = Sender(
            endpoints,
            transport,
            telemetry,
            settle=self._settle,
            holds=holds,
            clock=clock,
            check_repeat=check_repeat,
        )
        self._running: set[asyncio.Task[None]] = set()
        self._rescued_at = -RESCUE_SECONDS
        self._not_before = 0.0

    async def step(self) -> bool:
        """Claim and start sending what is due; returns whether there is, or will soon be, more."""
        await self._rescue()
        started = seconds()
        if started < self._not_before:
            return False
        room = {
            id_: slots
            for id_, slots in self._flow.spare(self._endpoints.ready).items()
            if not self._holds.will_hold(id_) and not self._clock.fault
        }
        request = ReplayRequest(room, uuid4(), self._endpoints.lease_seconds)
        turn = await self._store.claim_replays(request, started)
        if self._observer is not None:
            self._observer.replay_items(turn.item_count)
        if turn.lanes:
            failpoint("D16")
        if not turn.item_count:
            ended = seconds()
            self._not_before = ended + IDLE_FACTOR * (ended - started)
        for lane in turn.lanes:
            self._flow.lend(lane.endpoint_id)
            task = asyncio.create_task(self._send(lane))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if turn.moved:
            self._flow.request_claim()
        for id_, items in (turn.ended or {}).items():
            self._telemetry.info(Line.REPLAY_APPLIED, replay=str(id_), items=items)
        return turn.item_count > 0 or turn.paced

    async def run(self) -> None:
        """Store results until `close`."""
        await self._settler.run()

    def stop(self) -> None:
        """Start no further attempt; those in flight continue."""
        self._sender.stop()

    async def quiet(self) -> None:
        """Wait until nothing is being sent."""
        while self._running:
            await asyncio.wait(self._running)

    def abort(self) -> None:
        """Cancel the requests in flight."""
        for task in self._running:
            task.cancel()

    def close(self) -> None:
        """Let `run` return once every result is stored or dropped."""
        self._settler.close()

    async def _rescue(self) -> None:
        if seconds() - self._rescued_at < RESCUE_SECONDS:
            return
        rescued = await self._store.rescue_replays(RESCUES)
        if self._observer is not None:
            self._observer.rescued(rescued)
        for each in rescued:
            self._telemetry.rescued(self._endpoints.name(each.endpoint_id), each)
        self._rescued_at = seconds()

    async def _send(self, lane: Lane) -> None:
        try:
            await self._sender.send(lane)
        except Exception as error:  # noqa: BLE001 - the other items continue; its lease ends
            self._telemetry.crashed("replay", error)
        finally:
            self._flow.returned(lane.endpoint_id)

    def _settle(self, settlement: Settlement) -> None:
        # An exhausted item is marked as such; it makes no dead letter.
        self._settler.add(replace(settlement, dead=None))
