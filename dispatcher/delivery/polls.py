"""How often an idle dispatcher looks for new batches and for due lanes.

The database is asked whatever was announced: a lost notification delays a decision, and loses none.
While the doorbell works, looking once a second is enough. Writers that do not ring, such as a sink
with `doorbell=False`, are noticed by their batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import ceil

from holdfast.dispatcher.delivery.supervisor import Pulse
from holdfast.dispatcher.shared.clock import seconds

ROUTE_SECONDS = 0.08
"""Maximum delay of a new batch where no doorbell announces it."""

CLAIM_SECONDS = 0.25
"""Maximum delay of a retry; without the doorbell, of lanes that became due elsewhere."""

ANNOUNCED_SECONDS = 1.0
"""Maximum delay of batches and lanes while the doorbell works, should a notification be missing."""

UNANNOUNCED_SECONDS = 60.0
"""How long polls are as frequent as without the doorbell, after a batch that nobody announced."""

RETRY_SECONDS_MAX = 60.0
"""A retry in more than this is found by looking once a second."""


class Polls:
    """The pulses of routing and claiming."""

    def __init__(self) -> None:
        """The doorbell does not work yet."""
        self.routing = Pulse(0.005, ROUTE_SECONDS)
        self.claiming = Pulse(0.002, CLAIM_SECONDS)
        self._works = False
        self._unannounced_at = -UNANNOUNCED_SECONDS
        self._announced = False
        self._retries: set[int] = set()

    def doorbell(self, works: bool) -> None:
        """Record that the doorbell works, or does not any more."""
        self._works = works
        self._spread()

    def announced(self) -> None:
        """Record a notification of a batch."""
        self._announced = True

    async def route(self, step: Callable[[Callable[[], None]], Awaitable[bool]]) -> bool:
        """Call `step`, which calls back if it made lanes due, and note if nobody announced them.

        A notification follows its COMMIT: it may also come while `step` runs.
        """
        announced, self._announced = self._announced, False

        def routed() -> None:
            self.claiming.ring()
            if self._works and not announced and not self._announced:
                self._unannounced_at = seconds()

        found = await step(routed)
        self._spread()
        return found

    def retries(self, delays: Iterable[float]) -> None:
        """Claim when these seconds are over."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = {ceil((now + each) / CLAIM_SECONDS) for each in delays if each < RETRY_SECONDS_MAX}
        for turn in due - self._retries:
            self._retries.add(turn)
            loop.call_at(turn * CLAIM_SECONDS, self._retry, turn)

    def _retry(self, turn: int) -> None:
        self._retries.discard(turn)
        self.claiming.ring()

    def _spread(self) -> None:
        announced = self._works and seconds() - self._unannounced_at >= UNANNOUNCED_SECONDS
        self.routing.longest = ANNOUNCED_SECONDS if announced else ROUTE_SECONDS
        self.claiming.longest = ANNOUNCED_SECONDS if announced else CLAIM_SECONDS
