"""The doorbell: who writes decisions may ring it, and then nobody waits for the next look.

Nothing depends on it. It asks itself now and then whether it hears: behind a pooler in transaction
mode, or on a line that is cut without a word, it does not, and polling is all there is.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from dispatcher.delivery.store.watch import Listener, Watch
from dispatcher.delivery.telemetry.log import Line, Telemetry
from dispatcher.shared.clock import seconds
from dispatcher.shared.errors import StoreUnavailableError

PROBE_SECONDS = 60.0
"""How often it asks itself whether it hears."""

ANSWER_SECONDS = 5.0
"""How long its own word may take to come back."""


class DeafError(Exception):
    """What was rung did not come back."""


class Doorbell:
    """Listens on a connection of its own, again and again, until its task is cancelled."""

    def __init__(
        self,
        watch: Watch,
        telemetry: Telemetry,
        rung: Callable[[], None],
        *,
        probe_seconds: float = PROBE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`rung` is called for each word that comes."""
        self._watch = watch
        self._telemetry = telemetry
        self._rung = rung
        self._probe_seconds = probe_seconds
        self._answer_seconds = answer_seconds
        self._deaf = False

    async def run(self) -> None:
        """Listen. What breaks the line, and deafness, end nothing; a fault ends this alone."""
        try:
            await self._listen_on()
        except Exception as error:  # noqa: BLE001 - whatever it is, decisions are delivered
            self._telemetry.crashed("doorbell", error)

    async def _listen_on(self) -> None:
        while True:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((StoreUnavailableError, DeafError)),
                wait=wait_random_exponential(multiplier=0.1, max=self._probe_seconds),
            ):
                with attempt:
                    await self._listen()

    async def _listen(self) -> None:
        """Listen until the line breaks; raises when it was of no use from the start."""
        async with self._watch.listener() as listener:
            await self._probe(listener)
            # Whoever wrote while nobody listened has rung in vain.
            self._rung()
            with suppress(StoreUnavailableError, DeafError):
                while True:
                    while await listener.words(self._probe_seconds):
                        self._rung()
                    await self._probe(listener)

    async def _probe(self, listener: Listener) -> None:
        """Ring, from another connection, and raise `DeafError` when that is not heard."""
        own = token_hex(8)
        # A line that carries nothing any more would not even say that.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._answer_seconds):
                await self._watch.ring(own)
            if await self._comes_back(own, listener):
                self._heard()
                return
        if not self._deaf:
            self._deaf = True
            self._telemetry.warn(Line.DOORBELL_DEAF, seconds=self._answer_seconds)
        raise DeafError

    async def _comes_back(self, own: str, listener: Listener) -> bool:
        end = seconds() + self._answer_seconds
        while (left := end - seconds()) > 0:
            words = await listener.words(left)
            if set(words) - {own}:
                self._rung()
            if own in words:
                return True
        return False

    def _heard(self) -> None:
        if self._deaf:
            self._deaf = False
            self._telemetry.say(Line.DOORBELL_HEARD)
