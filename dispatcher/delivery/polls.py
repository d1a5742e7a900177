"""How often an idle dispatcher looks for work, and what makes it look at once.

The database is asked whatever was announced: a lost notification delays a decision, and loses none.
While the doorbell works, batches and operators' changes are announced, and each heartbeat asks for
what was missed, so the loops look rarely. Writers that do not ring, such as a sink with
`doorbell=False`, are noticed by their batches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import ceil

from holdfast.dispatcher.delivery.rules.values import Beat
from holdfast.dispatcher.delivery.supervisor import GROWTH, Pulse
from holdfast.dispatcher.shared.clock import seconds

ROUTE_SECONDS = 0.08
"""Maximum delay of a new batch where no doorbell announces it."""

CLAIM_SECONDS = 0.25
"""Maximum delay of a retry; without the doorbell, of lanes that became due elsewhere."""

LOOK_SECONDS = 1.0
"""Maximum delay of everything else: an operator's change, an expired lease, a replay."""

ANNOUNCED_SECONDS = 6.0
"""The same while the doorbell works, for lanes too: an expired lease, a change that was missed."""

RARELY_SECONDS = 60.0
"""How long the loops of batches and replays wait then, for which each heartbeat looks."""

ANNOUNCED_GROWTH = 16
"""By how much each pause is longer than the one before, while the doorbell works. What rang it is
found by the first step or, if another dispatcher was at it, by one of the next two."""

UNANNOUNCED_SECONDS = 60.0
"""How long polls are as frequent as without the doorbell, after a batch that nobody announced."""

RETRY_SECONDS_MAX = 600.0
"""A retry in more than this is found by looking."""


class Polls:
    """The pulses of the loops that look for work."""

    def __init__(self) -> None:
        """The doorbell does not work yet."""
        self.routing = Pulse(0.005, ROUTE_SECONDS)
        self.claiming = Pulse(0.002, CLAIM_SECONDS)
        self.rescuing = Pulse(0.05, LOOK_SECONDS)
        self.replaying = Pulse(0.02, LOOK_SECONDS)
        self.loading = Pulse(LOOK_SECONDS, LOOK_SECONDS)
        # The pulse, and its longest pause without the doorbell, and with it.
        self._pauses = (
            (self.routing, ROUTE_SECONDS, RARELY_SECONDS),
            (self.claiming, CLAIM_SECONDS, ANNOUNCED_SECONDS),
            (self.rescuing, LOOK_SECONDS, ANNOUNCED_SECONDS),
            (self.replaying, LOOK_SECONDS, RARELY_SECONDS),
            (self.loading, LOOK_SECONDS, ANNOUNCED_SECONDS),
        )
        self._rare = self._works = False
        self._unannounced_at = -UNANNOUNCED_SECONDS
        self._announced = self._changed = False
        self._retries: set[int] = set()

    def doorbell(self, works: bool) -> None:
        """Record that the doorbell works, or does not any more."""
        self._works = works
        self._spread()

    def announced(self) -> None:
        """Record a notification of a batch."""
        self._announced = True

    def changed(self) -> None:
        """Look for what an operator has changed: endpoints and holds, then lanes; and replays."""
        self._changed = True
        self.loading.ring()
        self.replaying.ring()

    def heartbeat(self, beat: Beat) -> None:
        """Let the loops run for which a heartbeat has found work."""
        if beat.batches:
            self.routing.ring()
        if beat.replays:
            self.replaying.ring()

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

    async def load(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Call `step`, and claim what an operator's change lets be sent."""
        changed, self._changed = self._changed, False
        busy = await step()
        if changed:
            self.claiming.ring()
        return busy

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
        before = self._rare
        self._rare = self._works and seconds() - self._unannounced_at >= UNANNOUNCED_SECONDS
        for pulse, often, rarely in self._pauses:
            pulse.longest = rarely if self._rare else often
            pulse.growth = ANNOUNCED_GROWTH if self._rare else GROWTH
            if before and not self._rare:
                pulse.ring()
