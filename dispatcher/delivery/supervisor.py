"""Loops that run until the process stops: how often they look, when they end."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from dispatcher.delivery.health import STEP_SECONDS, Health
from dispatcher.delivery.telemetry.log import Telemetry
from dispatcher.shared.errors import DispatcherError, StoreUnavailableError

GAP_SECONDS = 0.002
"""What passes between two looks in any case, so that a bell that never stops is no busy loop."""


class Pulse:
    """When a loop looks again: soon while there is work, else ever later, or when rung."""

    def __init__(self, shortest: float, longest: float) -> None:
        """Both in seconds."""
        self._shortest = shortest
        self.longest = longest
        self._pause = shortest
        self._rung = asyncio.Event()

    @property
    def steady(self) -> bool:
        """Whether it looks at fixed times."""
        return self._shortest == self.longest

    def ring(self) -> None:
        """Let the loop look now."""
        self._rung.set()

    async def rest(self, *, busy: bool) -> None:
        """Wait until it is time to look again."""
        self._pause = self._shortest if busy else min(2 * self._pause, self.longest)
        await asyncio.sleep(GAP_SECONDS)
        try:
            async with asyncio.timeout(self._pause):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
        self._pause = self._shortest


class Supervisor:
    """Runs the loops of a dispatcher and knows whether they shall stop."""

    def __init__(self, telemetry: Telemetry, health: Health) -> None:
        self._telemetry = telemetry
        self._health = health
        self._pulses: list[Pulse] = []
        self._stop = asyncio.Event()
        self.failure: Exception | None = None
        """The fault that ended a loop, if one did."""

    @property
    def stopping(self) -> bool:
        """Whether the loops shall end."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Let every loop end after the step that it is in."""
        self._stop.set()
        for pulse in self._pulses:
            pulse.ring()

    async def stopped(self) -> None:
        """Wait for `stop`."""
        await self._stop.wait()

    async def loop(
        self,
        name: str,
        step: Callable[[], Awaitable[bool]],
        pulse: Pulse,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        """Take `step` again and again; it returns whether there was something to do.

        An outage of the database ends no loop. Any other exception is a fault: it stops them all.
        A step that takes longer than `step_seconds` has the process called dead.
        """
        self._pulses.append(pulse)
        limit = step_seconds + pulse.longest
        self._health.turn(name, limit)
        try:
            if pulse.steady and not self.stopping:
                await pulse.rest(busy=False)  # what it does now and then was done at the start
            while not self.stopping:
                busy = await self._step(name, step)
                self._health.turn(name, limit)
                await pulse.rest(busy=busy)
        finally:
            self._health.end(name)

    async def guard(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run `work` once; a fault in it stops every loop."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as in a loop
            self._fail(name, error)

    async def _step(self, name: str, step: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await step()
        except StoreUnavailableError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must settle
            self._fail(name, error)
            return False

    def _fail(self, name: str, error: Exception) -> None:
        if not isinstance(error, DispatcherError):
            self._telemetry.crashed(name, error)
        self.failure = error
        self.stop()
