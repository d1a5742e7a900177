"""Settling: stores the results of some milliseconds in one transaction.

While the database is unavailable, results stay in memory until their leases end. After that they
are dropped and counted: the database records those attempts as `unknown` and the entries are sent
again, under the same keys.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from holdfast.dispatcher.delivery.endpoints import Endpoints
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.values import Settled, Settlement
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError

GATHER_SECONDS = 0.005
"""How long a result waits for others to share its transaction."""

GATHERS_MAX = 4
"""Maximum number of waits while results keep coming: a small transaction costs as much."""

STREAM = 4
"""Number of new results within one wait that makes it worth another wait."""

SETTLEMENTS_MAX = 512
"""Maximum number of results that one transaction stores."""


class StoreResults(Protocol):
    """Stores results, as `PostgresStore.settle` does."""

    async def __call__(
        self, settlements: Sequence[Settlement], /, *, repeated: bool
    ) -> list[Settled]:
        """Return what was stored. Raises `StoreUnavailableError`."""
        ...


class Settler:
    """Stores results and reports their fate to the rest of the process."""

    def __init__(
        self,
        store: StoreResults,
        endpoints: Endpoints,
        telemetry: Telemetry,
        *,
        done: Callable[[Settlement], None],
        due: Callable[[], None],
        retries: Callable[[Iterable[float]], None],
        holds: Holds | None = None,
        observe: Callable[[list[Settlement], list[Settled], float], None] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`done` is called with each result that left memory, `due` when lanes are due at once,
        `retries` with the seconds until others are.

        `holds` records endpoints that results put on hold, and stored results. `observe` is called
        with the results of a transaction, those that it stored and its start. `pause` sleeps.
        """
        self._pause = pause
        self._store = store
        self._endpoints = endpoints
        self._telemetry = telemetry
        self._done = done
        self._due = due
        self._retries = retries
        self._holds = holds or Holds()
        self._observe = observe
        self._queue: list[Settlement] = []
        self._filled = asyncio.Event()
        self._closing = False

    def add(self, settlement: Settlement) -> None:
        """Accept a result."""
        self._queue.append(settlement)
        self._filled.set()

    def close(self) -> None:
        """Let `run` return once every accepted result is stored or dropped."""
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
            length_before = len(self._queue)
            await self._pause(0 if self._closing else GATHER_SECONDS)
            streaming = len(self._queue) - length_before >= STREAM
            if self._closing or not streaming or len(self._queue) >= SETTLEMENTS_MAX:
                return

    async def _store_all(self, batch: list[Settlement]) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            wait=wait_random_exponential(multiplier=0.05, max=1),
        ):
            with attempt:
                # A late result gets one try too: its token decides whether it is stored.
                repeated = attempt.retry_state.attempt_number > 1
                if repeated:
                    batch = self._trusted(batch)
                if batch:
                    began = seconds()
                    settled = await self._store(batch, repeated=repeated)
                    if self._observe is not None:
                        self._observe(batch, settled, began)
                    self._report(batch, settled)

    def _trusted(self, batch: list[Settlement]) -> list[Settlement]:
        """Drop the results whose lease has ended; returns the others."""
        now = seconds()
        for settlement in batch:
            if settlement.trusted_until <= now:
                self._telemetry.result_dropped(self._name(settlement), settlement)
                self._finished(settlement)
        return [settlement for settlement in batch if settlement.trusted_until > now]

    def _report(self, batch: list[Settlement], settled: list[Settled]) -> None:
        self._telemetry.settled_all((self._name(each.settlement), each) for each in settled)
        for each in settled:
            if each.paced is not None and each.paced.holds:
                self._holds.mark_held([each.settlement.endpoint_id])
            if each.settlement.disable is not None:
                self._endpoints.disable(each.settlement.endpoint_id, each.settlement.disable)
        stored = {id(each.settlement) for each in settled}
        for settlement in batch:
            if id(settlement) not in stored:
                self._telemetry.lease_lost(self._name(settlement), settlement)
            self._finished(settlement)
        if any(each.due_at and each.settlement.delay_us is None for each in settled):
            self._due()
        self._retries(
            each.settlement.delay_us / 1_000_000
            for each in settled
            if each.due_at and each.settlement.delay_us is not None
        )

    def _finished(self, settlement: Settlement) -> None:
        if self._holds.stored(settlement):
            self._due()
        self._done(settlement)

    def _name(self, settlement: Settlement) -> str:
        return self._endpoints.name(settlement.endpoint_id)
