"""Loops that run until the process stops: their intervals and their end."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from holdfast.dispatcher.delivery.health import STEP_SECONDS, Health
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.shared.errors import DispatcherError, StoreUnavailableError

GAP_SECONDS = 0.002
"""Minimum pause between two steps: a pulse that is rung constantly causes no busy loop."""

GROWTH = 4
"""A pulse's, unless it is changed."""


class Pulse:
    """When a loop takes its next step: soon while there is work, else ever later, or when rung."""

    def __init__(self, shortest: float, longest: float) -> None:
        """Both are in seconds. `longest` may be changed at any time."""
        self._shortest = shortest
        self.longest = longest
        self.growth = GROWTH
        """By how much a pause is longer than the one before while the loop finds no work."""
        self._pause = shortest
        self._rung = asyncio.Event()

    @property
    def steady(self) -> bool:
        """Whether the interval is fixed."""
        return self._shortest == self.longest

    def ring(self) -> None:
        """Let the loop take a step now."""
        self._rung.set()

    async def rest(self, *, busy: bool) -> None:
        """Wait until the next step is due."""
        self._pause = self._shortest if busy else min(self.growth * self._pause, self.longest)
        await asyncio.sleep(GAP_SECONDS)
        try:
            async with asyncio.timeout(self._pause):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
        self._pause = self._shortest


class Supervisor:
    """Runs and stops the loops of a dispatcher."""

    def __init__(self, telemetry: Telemetry, health: Health) -> None:
        self._telemetry = telemetry
        self._health = health
        self._pulses: list[Pulse] = []
        self._stop = asyncio.Event()
        self.failure: Exception | None = None
        """The first error that ended a loop, if one did."""

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Let every loop end after its current step."""
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
        """Call `step` repeatedly; it returns whether it found work.

        An outage of the database ends no loop. Any other exception stops all of them. While a step
        takes longer than `step_seconds`, the process counts as not live.
        """
        self._pulses.append(pulse)
        self._health.turn(name, step_seconds + pulse.longest)
        try:
            if pulse.steady and not self.stopping:
                await pulse.rest(busy=False)  # its first step ran at the start
            while not self.stopping:
                busy = await self.step(name, step)
                self._health.turn(name, step_seconds + pulse.longest)
                await pulse.rest(busy=busy)
        finally:
            self._health.end(name)

    async def guard(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run `work` once; an exception in it stops every loop."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as in a loop
            self._fail(name, error)

    async def step(self, name: str, step: Callable[[], Awaitable[bool]]) -> bool:
        """Call `step` once; returns whether it found work. Never raises; see `loop`."""
        try:
            return await step()
        except StoreUnavailableError:
            return False
        except Exception as error:  # noqa: BLE001 - the other loops must still settle
            self._fail(name, error)
            return False

    def _fail(self, name: str, error: Exception) -> None:
        if not isinstance(error, DispatcherError):
            self._telemetry.crashed(name, error)
        self.failure = self.failure or error
        self.stop()
