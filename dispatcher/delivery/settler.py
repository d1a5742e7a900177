"""Settling: the results of some milliseconds in one transaction.

While the database is away, results stay in memory as long as their leases last. After that they
are dropped and counted: the database books those attempts as `unknown` and the entries are sent
again, under the same keys.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from dispatcher.delivery.endpoints import Endpoints
from dispatcher.delivery.holds import Holds
from dispatcher.delivery.ports import Results
from dispatcher.delivery.rules.values import Settled, Settlement
from dispatcher.delivery.telemetry.log import Telemetry
from dispatcher.shared.clock import seconds
from dispatcher.shared.errors import StoreUnavailableError

GATHER_SECONDS = 0.005
"""How long a result waits for others to share its transaction."""

GATHERS_MAX = 4
"""How often that is waited while results keep coming: a transaction costs the same for few."""

STREAM = 4
"""So many results within one wait are results that keep coming."""

SETTLEMENTS_MAX = 512
"""How many results one transaction stores."""


class Settler:
    """Stores results, and tells the rest of the process what became of them."""

    def __init__(
        self,
        store: Results,
        endpoints: Endpoints,
        telemetry: Telemetry,
        *,
        done: Callable[[Settlement], None],
        due: Callable[[], None],
        holds: Holds | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`done` hears of each result that left memory, `due` that lanes are due again at once.

        `holds` hears of endpoints that nothing may be sent to any more for a while, and of each
        result that is stored. `pause` waits so many seconds.
        """
        self._pause = pause
        self._store = store
        self._endpoints = endpoints
        self._telemetry = telemetry
        self._done = done
        self._due = due
        self._holds = holds or Holds()
        self._queue: list[Settlement] = []
        self._filled = asyncio.Event()
        self._closing = False

    def add(self, settlement: Settlement) -> None:
        """Accept a result."""
        self._queue.append(settlement)
        self._filled.set()

    def close(self) -> None:
        """Let `run` return when everything that was accepted is stored or dropped."""
        self._closing = True
        self._filled.set()

    async def run(self) -> None:
        """Store results until closed."""
        while self._queue or not self._closing:
            await self._filled.wait()
            await self._gather()
            batch, self._queue = self._queue[:SETTLEMENTS_MAX], self._queue[SETTLEMENTS_MAX:]
            if not self._queue and not self._closing:
                self._filled.clear()
            if batch:
                await self._store_all(batch)

    async def _gather(self) -> None:
        for _ in range(GATHERS_MAX):
            known = len(self._queue)
            await self._pause(0 if self._closing else GATHER_SECONDS)
            streaming = len(self._queue) - known >= STREAM
            if self._closing or not streaming or len(self._queue) >= SETTLEMENTS_MAX:
                return

    async def _store_all(self, batch: list[Settlement]) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            wait=wait_random_exponential(multiplier=0.05, max=1),
        ):
            with attempt:
                # The first try is made in any case: of a late result, too, the token decides.
                repeated = attempt.retry_state.attempt_number > 1
                if repeated:
                    batch = self._trusted(batch)
                if batch:
                    self._report(batch, await self._store.settle(batch, repeated=repeated))

    def _trusted(self, batch: list[Settlement]) -> list[Settlement]:
        """Drop the results whose lease has run out; returns the others."""
        now = seconds()
        for settlement in batch:
            if settlement.trusted_until <= now:
                self._telemetry.result_dropped(self._name(settlement), settlement)
                self._left(settlement)
        return [settlement for settlement in batch if settlement.trusted_until > now]

    def _report(self, batch: list[Settlement], settled: list[Settled]) -> None:
        self._telemetry.settled_all((self._name(each.settlement), each) for each in settled)
        for each in settled:
            if each.paced is not None and each.paced.holds:
                self._holds.found([each.settlement.endpoint_id])
            if each.settlement.disable is not None:
                self._endpoints.disable(each.settlement.endpoint_id, each.settlement.disable)
        stored = {id(each.settlement) for each in settled}
        for settlement in batch:
            if id(settlement) not in stored:
                self._telemetry.lease_lost(self._name(settlement), settlement)
            self._left(settlement)
        if any(each.due_at and each.settlement.delay_us is None for each in settled):
            self._due()

    def _left(self, settlement: Settlement) -> None:
        if self._holds.stored(settlement):
            self._due()
        self._done(settlement)

    def _name(self, settlement: Settlement) -> str:
        return self._endpoints.name(settlement.endpoint_id)
