"""The plan of a run, and the context that every check gets."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.dispatcher.workbench.conform.aim import Aim
from holdfast.dispatcher.workbench.conform.client import Client
from holdfast.dispatcher.workbench.conform.probe import Probe
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.rules import Rule
from holdfast.dispatcher.workbench.conform.sample import Delivery, Sample
from holdfast.dispatcher.workbench.conform.shot import Shot, shot
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.numbers import is_whole

SETTLE_SECONDS_MAX = 5.0
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 2.0
DRIP_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Which requests to send, to which receiver, with which limits."""

    url: str
    inquiry_url: str
    """The URL of inquiries, with `{key}` in it."""
    secret: Secret = field(repr=False)
    second_secret: Secret | None = field(default=None, repr=False)
    sample: Sample = field(default_factory=lambda: Sample(0))
    deadline_seconds: float = 15.0
    patient_seconds: float = 0.0
    """Minimum age of the first key when it is sent again at the end."""
    drip_seconds: float = DRIP_SECONDS_MAX
    ca_file: str | None = None
    wants: Callable[[Rule], bool] = lambda _rule: True


@dataclass(slots=True)
class Kit:
    """One run of the kit."""

    plan: Plan
    client: Client
    probe: Probe | None
    first: tuple[Delivery, Reply, float] | None = None
    """The first good delivery, its answer, and the time of the answer (monotonic seconds)."""

    def aim(self, name: str) -> Aim:
        """Return a new delivery to modify, signed as of now."""
        return Aim(self.plan.sample.delivery(name), self.plan.secret, int(time.time()))

    def shot(self, delivery: Delivery) -> Shot:
        """Return the request that the dispatcher would send for it now."""
        return shot(delivery, (self.plan.secret,), int(time.time()))

    async def send(self, delivery: Delivery) -> Reply:
        """Send it as the dispatcher would; raises `GaveUp`."""
        return await self.client.send(self.shot(delivery))

    async def send_settled(self, delivery: Delivery) -> Reply:
        """Send it, and retry while the receiver is busy, for up to `SETTLE_SECONDS_MAX`."""
        end = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            reply = await self.send(delivery)
            if not reply.is_busy or time.monotonic() > end:
                return reply
            await asyncio.sleep(_pause(reply))

    async def count(self, delivery: Delivery) -> int | None:
        """Return how often it was applied, as counted by the probe; None without a probe."""
        if self.probe is None:
            return None
        return await self.probe.applied(delivery.key, delivery.subject)

    async def count_settled(self, delivery: Delivery) -> int | None:
        """Wait for a count other than 0, for up to `SETTLE_SECONDS_MAX`."""
        end = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            counted = await self.count(delivery)
            if counted != 0 or time.monotonic() > end:
                return counted
            await asyncio.sleep(_PAUSE_SECONDS)


def _pause(reply: Reply) -> float:
    retry_after = reply.headers.get("retry-after", "")
    if is_whole(retry_after):
        return min(float(retry_after[:4]), _PAUSE_SECONDS_MAX) or _PAUSE_SECONDS
    return _PAUSE_SECONDS
