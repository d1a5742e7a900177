"""A dispatcher: builds its parts, then starts, drains and stops them.

Stopping has two phases. First nothing new is claimed or started, requests in flight finish, results
are settled and unsent lanes are released. After the time limit, or at a second signal, requests in
flight are cancelled: those that were sent are settled as `unknown`.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any
from uuid import uuid4

from holdfast.dispatcher.delivery.backlog_monitor import (
    MONITOR_SECONDS,
    SERVER_SECONDS,
    UNDELIVERED_SECONDS,
    BacklogMonitor,
    ServerMonitor,
)
from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.doorbell import Doorbell
from holdfast.dispatcher.delivery.endpoints import Endpoints
from holdfast.dispatcher.delivery.flow import Flow
from holdfast.dispatcher.delivery.health import STEP_SECONDS, Health
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.loops import Steps
from holdfast.dispatcher.delivery.maintenance import LONGEST_SECONDS, SHORTEST_SECONDS, Maintenance
from holdfast.dispatcher.delivery.polls import Polls
from holdfast.dispatcher.delivery.replaying import Replayer
from holdfast.dispatcher.delivery.rules.values import Instance, Settlement
from holdfast.dispatcher.delivery.sender import RepeatCheck, Sender
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.dispatcher.delivery.settler import Settler
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.watch import Watch
from holdfast.dispatcher.delivery.supervisor import Pulse, Supervisor
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.delivery.telemetry.metrics import Measures
from holdfast.dispatcher.delivery.telemetry.observer import Observer
from holdfast.dispatcher.outbound.request import USER_AGENT
from holdfast.dispatcher.outbound.transport.transport import Transport
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import (
    DispatcherError,
    StoreRefusedError,
    StoreUnavailableError,
    UnservedError,
)
from holdfast.sink.contract.failpoints import failpoint

BEAT_SECONDS = 5.0

ROUTE_STEP_SECONDS = 1900.0
"""Time limit of a routing step: three tries at a large batch, ten minutes each."""

TICK_SECONDS = 1.0
TICK_STEP_SECONDS = 15.0
"""How long the event loop may be blocked before the process counts as not live."""

SETTLE_SECONDS = 5.0
"""Minimum time for settling after a stop, even if `stop_seconds` is shorter."""


@dataclass(frozen=True, slots=True)
class Report:
    """How a dispatcher ended."""

    counts: Mapping[str, int]
    """Attempts by outcome, and `dead`, `other_keys`, `rescued`, `lost_leases`, `dropped_results`,
    `gaps`, `crashed`; of days past their retention, `days_dropped` and `days_kept`.
    """
    waiting: Mapping[str, str]
    """Endpoints with pending entries that could not be sent to, with the reason. For one that is
    paused or held by its breaker or by Retry-After, the reason says until when."""
    failure: Exception | None
    """The error that ended the dispatcher, if one did."""


class Dispatcher:
    """One dispatcher process. Several may run on one database."""

    def __init__(
        self,
        settings: Settings,
        store: PostgresStore,
        transport: Transport,
        watch: Watch | None = None,
        check_repeat: RepeatCheck | None = None,
    ) -> None:
        """Store and watch must be open before `run`; the caller owns and closes all three.

        Without a `watch` there is no doorbell and no backlog metrics. `check_repeat` asks receivers
        about a key (`holdfast.dispatcher.delivery.repeat_check`).
        """
        self._settings = settings
        self.health = Health()
        self.measures = Measures()
        self._store = store
        self._watch = watch
        self._telemetry = Telemetry()
        self._supervisor = Supervisor(self._telemetry, self.health)
        self._aborted = asyncio.Event()
        self._polls = Polls()
        self._endpoints = Endpoints(
            store, transport, self._telemetry, settings.lease_seconds, settings.references
        )
        listens = settings.listen is not None
        holds, clock = Holds(), DatabaseClock()
        observer = Observer(self.measures, self._endpoints.name, clock.now) if listens else None
        self._settler = Settler(
            store.settle,
            self._endpoints,
            self._telemetry,
            done=self._settled,
            due=self._polls.claiming.ring,
            retries=self._polls.retries,
            holds=holds,
            observe=None if observer is None else observer.settled,
        )
        self._sender = Sender(
            self._endpoints,
            transport,
            self._telemetry,
            settle=self._settler.add,
            holds=holds,
            clock=clock,
            check_repeat=check_repeat,
        )
        self._flow = Flow(
            settings.concurrency,
            settings.claim_lanes,
            send=self._sender.send,
            room=self._polls.claiming.ring,
            crashed=partial(self._telemetry.crashed, "send"),
        )
        self._replayer = Replayer(
            store,
            self._endpoints,
            transport,
            self._telemetry,
            self._flow,
            holds=holds,
            clock=clock,
            check_repeat=check_repeat,
            observer=observer,
        )
        self._maintenance = Maintenance(store, self._telemetry, settings.retain_days)
        self._instance = _this_process()
        self._steps = self._new_steps(holds, clock, observer)

    def stop(self) -> None:
        """Stop gracefully; the second call cancels what is still in flight."""
        if self._supervisor.stopping:
            self._aborted.set()
        self._supervisor.stop()

    def reload(self) -> None:
        """Load endpoints and secrets now, and log it."""
        self._steps.request_load()
        self._polls.loading.ring()

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of log events so far, as in `Report.counts`."""
        return self._telemetry.counts

    def in_flight(self) -> int:
        """Return how many lanes are being sent."""
        return self._flow.sending

    def _new_steps(self, holds: Holds, clock: DatabaseClock, observer: Observer | None) -> Steps:
        return Steps(
            self._store,
            self._endpoints,
            self._flow,
            self._telemetry,
            self._instance,
            entries_per_lane=self._settings.entries_per_lane,
            holds=holds,
            clock=clock,
            health=self.health,
            observer=observer,
        )

    async def run(self) -> Report:
        """Deliver until stopped, or with `drain` until nothing more can be sent now.

        Raises `StoreUnavailableError` when the database is unavailable at the start, and
        `UnservedError` when it does not serve this version.
        """
        await self._maintenance.make_partitions()
        await self._endpoints.refresh()
        self.health.loaded()
        await self._steps.beat()
        self._telemetry.info(
            Line.STARTED,
            instance=str(self._instance.id),
            version=self._instance.version,
            drain=self._settings.drain,
            concurrency=self._settings.concurrency,
            lease_seconds=self._endpoints.lease_seconds,
            endpoints=len(self._endpoints.ready),
        )
        async with asyncio.TaskGroup() as tasks:
            settling = {
                tasks.create_task(self._supervisor.guard(name, work))
                for name, work in (
                    ("settle", self._settler.run()),
                    ("settle replays", self._replayer.run()),
                )
            }
            aside = self._start_aside(tasks)
            loops = self._start_loops(tasks)
            await self._supervisor.stopped()
            self.health.stopping()
            # Nothing depends on these, and they may take minutes: their transactions roll back.
            for task in aside:
                task.cancel()
            await self._wind_down(loops, settling)
        return await self._leave()

    def _start_loops(self, tasks: asyncio.TaskGroup) -> set[asyncio.Task[None]]:
        steps, polls = self._steps, self._polls
        loops: dict[str, tuple[Callable[[], Awaitable[bool]], Pulse]] = {
            "route": (partial(polls.route, steps.route), polls.routing),
            "claim": (partial(steps.claim, polls.routing.ring), polls.claiming),
            "rescue": (steps.rescue, polls.rescuing),
            "replay": (self._replayer.step, polls.replaying),
            "load": (partial(polls.load, steps.load), polls.loading),
            "beat": (self._beat, Pulse(BEAT_SECONDS, BEAT_SECONDS)),
            "tick": (_tick, Pulse(TICK_SECONDS, TICK_SECONDS)),
        }
        patience = {"route": ROUTE_STEP_SECONDS, "tick": TICK_STEP_SECONDS}
        if self._settings.drain:
            loops["drain"] = (partial(steps.drain, self._supervisor.stop), Pulse(0.05, 0.25))
        return {
            tasks.create_task(
                self._supervisor.loop(name, step, pulse, patience.get(name, STEP_SECONDS))
            )
            for name, (step, pulse) in loops.items()
        }

    async def _beat(self, *, draining: bool = False) -> bool:
        try:
            beat = await self._steps.beat(draining=draining)
        except StoreRefusedError:
            self.health.wrote(accepted=False)
            raise
        self.health.wrote(accepted=True)
        self._polls.heartbeat(beat)
        return False

    def _start_aside(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the tasks that delivery does not depend on."""
        loop = self._supervisor.loop
        maintaining = Pulse(SHORTEST_SECONDS, LONGEST_SECONDS)
        work = [loop("maintain", self._maintenance.step, maintaining, inf)]
        if self._watch is not None and self._settings.listen is not None:
            monitor = BacklogMonitor(self._watch, self.measures, self.health)
            pulse = Pulse(MONITOR_SECONDS / 10, MONITOR_SECONDS)
            work.append(loop("monitor", monitor.step, pulse))
            pulse = Pulse(UNDELIVERED_SECONDS / 10, UNDELIVERED_SECONDS)
            work.append(loop("undelivered", monitor.undelivered, pulse, inf))
            server = ServerMonitor(self._watch, self.measures, self._telemetry)
            pulse = Pulse(SERVER_SECONDS / 10, SERVER_SECONDS)
            work.append(loop("server", server.step, pulse, inf))
        if self._watch is not None and self._settings.doorbell:
            polls = self._polls
            doorbell = Doorbell(
                self._watch, self._telemetry, self._rung, polls.changed, polls.doorbell
            )
            work.append(doorbell.run())
        return [tasks.create_task(each) for each in work]

    async def _wind_down(
        self, loops: set[asyncio.Task[None]], settling: set[asyncio.Task[None]]
    ) -> None:
        end = seconds() + self._settings.stop_seconds
        self._sender.stop()
        self._replayer.stop()
        # A claim may be in progress: its lanes are released below.
        await self._patiently(loops, end)
        for lane in self._flow.close():
            self._sender.release(lane)
        self._telemetry.info(Line.STOPPING, in_flight=self._flow.sending)
        failpoint("D14")
        # Whatever it raises, the results in memory must still be settled.
        await self._supervisor.step("beat", partial(self._beat, draining=True))
        sending = (self._flow, self._replayer)
        await self._patiently({asyncio.create_task(each.quiet()) for each in sending}, end)
        for each in sending:
            each.abort()
            await each.quiet()
        self._settler.close()
        self._replayer.close()
        await asyncio.wait(settling, timeout=max(SETTLE_SECONDS, end - seconds()))
        for task in settling:
            task.cancel()

    async def _patiently(self, work: set[asyncio.Task[None]], end: float) -> None:
        """Wait for all of `work`, until `end` or a second signal at most; then cancel it."""
        aborted = asyncio.create_task(self._aborted.wait())
        either: set[asyncio.Future[Any]] = {asyncio.gather(*work, return_exceptions=True), aborted}
        await asyncio.wait(
            either,
            timeout=max(0, end - seconds()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in (*work, aborted):
            task.cancel()
        await asyncio.gather(*work, aborted, return_exceptions=True)

    async def _leave(self) -> Report:
        waiting: dict[str, str] = {}
        failure = await self._failure()
        # After a failure any statement may fail; the row of this process is deleted all the same.
        with suppress(StoreUnavailableError if failure is None else Exception):
            waiting |= await self._store.held_up()
            await self._endpoints.note_windows()
            faults = self._endpoints.faults
            for endpoint_id in await self._store.waiting_lanes(faults.keys()):
                waiting[self._endpoints.name(endpoint_id)] = faults[endpoint_id]
        with suppress(StoreUnavailableError if failure is None else Exception):
            await self._store.leave(self._instance)
        counts = dict(self._telemetry.counts)
        self._telemetry.info(Line.STOPPED, unsettled=self._flow.held, **counts)
        return Report(counts, waiting, failure)

    async def _failure(self) -> Exception | None:
        """Return what ended the dispatcher.

        A statement that failed may have done so because the schema serves this version no more.
        """
        failure = self._supervisor.failure
        if failure is not None and not isinstance(failure, DispatcherError):
            with suppress(Exception):  # the first error matters more
                misfit = await self._store.misfit()
                if misfit is not None:
                    return UnservedError(misfit)
        return failure

    def _rung(self) -> None:
        self._polls.announced()
        # Routing wakes the claim loop if it finds something; an earlier claim would delay it.
        pulse = self._polls.claiming if self._steps.announce_batch() else self._polls.routing
        pulse.ring()

    def _settled(self, settlement: Settlement) -> None:
        self._flow.settled(settlement.endpoint_id)


def _this_process() -> Instance:
    version = USER_AGENT.partition("/")[2]
    return Instance(uuid4(), socket.gethostname(), os.getpid(), version)


async def _tick() -> bool:
    """Do nothing: being called shows that the event loop is running."""
    return False
