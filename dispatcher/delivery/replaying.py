"""The replay loop: items taken behind live traffic, sent in berths that live lanes can spare.

It has a sender and a settler of its own, because what it settles are items and not lanes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from dispatcher.delivery.endpoints import Endpoints
from dispatcher.delivery.flow import Flow
from dispatcher.delivery.holds import Holds
from dispatcher.delivery.ports import Store
from dispatcher.delivery.rules.replays import ReplayWanted
from dispatcher.delivery.rules.values import Lane, Settled, Settlement
from dispatcher.delivery.sender import Find, Sender
from dispatcher.delivery.settler import Settler
from dispatcher.delivery.telemetry.log import Line, Telemetry
from dispatcher.outbound.transport.transport import Transport
from dispatcher.shared.clock import seconds
from sink.contract.failpoints import failpoint

RESCUES = 256
"""Expired leases that one rescue takes."""

RESCUE_SECONDS = 1.0
"""The time between two rescues, at least."""

IDLE_FACTOR = 10
"""A look that found nothing is not repeated before so many times its own time has passed: it walks
over items that wait for a retry, or behind one."""


class _Items:
    """A store's results of items, as a settler stores results."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def settle(self, settlements: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        return await self._store.settle_replays(settlements, repeated=repeated)


class Replayer:
    """Takes items of replays to their settlement."""

    def __init__(
        self,
        store: Store,
        endpoints: Endpoints,
        transport: Transport,
        telemetry: Telemetry,
        flow: Flow,
        *,
        holds: Holds,
        find: Find | None,
    ) -> None:
        """`flow` lends the berths, and hears of lanes that a replay has made due."""
        self._store = store
        self._endpoints = endpoints
        self._telemetry = telemetry
        self._flow = flow
        self._holds = holds
        self._settler = Settler(
            _Items(store),
            endpoints,
            telemetry,
            done=lambda _: None,
            due=lambda: None,
            holds=holds,
        )
        self._sender = Sender(
            endpoints, transport, telemetry, settle=self._settle, holds=holds, find=find
        )
        self._running: set[asyncio.Task[None]] = set()
        self._rescued_at = -RESCUE_SECONDS
        self._not_before = 0.0

    async def step(self) -> bool:
        """Take what may be taken now; returns whether there is, or will soon be, more."""
        await self._rescue()
        started = seconds()
        if started < self._not_before:
            return False
        room = {
            id_: berths
            for id_, berths in self._flow.spare(self._endpoints.ready).items()
            if not self._holds.waits(id_)
        }
        wanted = ReplayWanted(room, uuid4(), self._endpoints.lease_seconds)
        turn = await self._store.claim_replays(wanted, started)
        if turn.lanes:
            failpoint("D16")
        if not turn.found:
            ended = seconds()
            self._not_before = ended + IDLE_FACTOR * (ended - started)
        for lane in turn.lanes:
            self._flow.lend(lane.endpoint_id)
            task = asyncio.create_task(self._send(lane))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if turn.moved:
            self._flow.look()
        for id_, items in (turn.ended or {}).items():
            self._telemetry.say(Line.REPLAY_APPLIED, replay=str(id_), items=items)
        return turn.found > 0 or turn.paced

    async def run(self) -> None:
        """Store results until closed."""
        await self._settler.run()

    def stop(self) -> None:
        """Begin no further attempt; those in flight go on."""
        self._sender.stop()

    async def quiet(self) -> None:
        """Wait until nothing is being sent."""
        while self._running:
            await asyncio.wait(self._running)

    def abort(self) -> None:
        """Cancel what is being sent."""
        for task in self._running:
            task.cancel()

    def close(self) -> None:
        """Let `run` return when everything is stored or dropped."""
        self._settler.close()

    async def _rescue(self) -> None:
        if seconds() - self._rescued_at < RESCUE_SECONDS:
            return
        for each in await self._store.rescue_replays(RESCUES):
            self._telemetry.rescued(self._endpoints.name(each.endpoint_id), each)
        self._rescued_at = seconds()

    async def _send(self, lane: Lane) -> None:
        try:
            await self._sender.send(lane)
        except Exception as error:  # noqa: BLE001 - the other items go on; its lease runs out
            self._telemetry.crashed("replay", error)
        finally:
            self._flow.returned(lane.endpoint_id)

    def _settle(self, settlement: Settlement) -> None:
        # An item that is given up says so itself; it makes no dead letter.
        self._settler.add(replace(settlement, dead=None))
