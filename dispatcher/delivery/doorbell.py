"""The doorbell: writers notify the dispatchers of a batch (NOTIFY), and operators of a change.

Nothing depends on it: dispatchers also poll, less often while it works. It tests itself regularly:
behind a pooler in transaction mode, or on a connection that broke silently, no notification
arrives.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from holdfast.dispatcher.delivery.store.watch import Listener, Watch
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError

PROBE_SECONDS = 60.0
"""Interval of the self-test."""

CHANGED = "changed"
"""What operators say, and a dispatcher that leaves. A writer of a batch says nothing."""

ANSWER_SECONDS = 5.0
"""How long the notification of a self-test may take to arrive."""


class DeafError(Exception):
    """The notification of a self-test did not arrive."""


class Doorbell:
    """Listens on its own connection, and reconnects, until its task is cancelled."""

    def __init__(
        self,
        watch: Watch,
        telemetry: Telemetry,
        rung: Callable[[], None],
        changed: Callable[[], None],
        works: Callable[[bool], None],
        *,
        probe_seconds: float = PROBE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`rung` is called where a batch was announced, `changed` where something else was.

        `works` is called when it begins or ends to be sure that these are heard.
        """
        self._watch = watch
        self._telemetry = telemetry
        self._rung = rung
        self._changed = changed
        self._works = works
        self._probe_seconds = probe_seconds
        self._answer_seconds = answer_seconds
        self._deaf = False

    async def run(self) -> None:
        """Listen. Broken connections are retried; an internal error ends the doorbell alone."""
        try:
            await self._listen_on()
        except Exception as error:  # noqa: BLE001 - its errors must not stop delivery
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
        """Listen until the connection breaks; raises if its first self-test fails."""
        async with self._watch.listener() as listener:
            await self._probe(listener)
            self._works(True)
            # While nothing listened, a batch may have been written, or a change made.
            self._rung()
            self._changed()
            try:
                while True:
                    while payloads := await listener.payloads(self._probe_seconds):
                        self._heard(payloads)
                    await self._probe(listener)
            except (StoreUnavailableError, DeafError):
                return
            finally:
                self._works(False)

    async def _probe(self, listener: Listener) -> None:
        """Notify from another connection; raises `DeafError` when that does not arrive."""
        token = token_hex(8)
        # A connection that broke silently raises nothing; it only times out.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._answer_seconds):
                await self._watch.ring(token)
            if await self._arrives(token, listener):
                self._recovered()
                return
        if not self._deaf:
            self._deaf = True
            self._telemetry.warn(Line.DOORBELL_DEAF, seconds=self._answer_seconds)
        raise DeafError

    async def _arrives(self, token: str, listener: Listener) -> bool:
        end = seconds() + self._answer_seconds
        while (remaining := end - seconds()) > 0:
            payloads = await listener.payloads(remaining)
            self._heard(payloads)
            if token in payloads:
                return True
        return False

    def _heard(self, payloads: list[str]) -> None:
        """Pass on what a writer rang; the self-tests of other dispatchers have a payload."""
        if "" in payloads:
            self._rung()
        if CHANGED in payloads:
            self._changed()

    def _recovered(self) -> None:
        if self._deaf:
            self._deaf = False
            self._telemetry.info(Line.DOORBELL_HEARD)
