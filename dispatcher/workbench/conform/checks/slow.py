"""A sender that never finishes: whether others are served meanwhile, and when it is cut."""

import asyncio

from dispatcher.workbench.conform import judge, rules
from dispatcher.workbench.conform.checks.drip import Dripped, drip
from dispatcher.workbench.conform.kit import Kit
from dispatcher.workbench.conform.rule import Verdict

_HEAD_START_SECONDS = 0.3


class SlowSender:
    """Drips beside the other checks, because a receiver may bear with it for a while."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._task: asyncio.Task[Dripped] | None = None

    async def begin(self) -> list[Verdict]:
        """Begin, and send a good delivery beside it."""
        plan = self._kit.plan
        shot = self._kit.shot(plan.sample.delivery("slow"))
        self._task = asyncio.create_task(drip(plan.url, shot, plan.drip_seconds, plan.ca_file))
        await asyncio.sleep(_HEAD_START_SECONDS)
        reply = await self._kit.send(plan.sample.delivery("beside-slow"))
        if reply.status is None:
            # A receiver that serves one at a time would fail every other rule as well.
            await self.cancel()
        return [judge.accepted(rules.SLOW_OTHERS, reply)]

    async def end(self) -> list[Verdict]:
        """Wait for the receiver to cut it."""
        if self._task is None:
            return [rules.SLOW_CUT.warned("not looked at: it kept others waiting")]
        dripped = await self._task
        if dripped.ended is None:
            return [rules.SLOW_CUT.violated(f"still open after {dripped.seconds:.0f} s")]
        return [rules.SLOW_CUT.passed(f"{dripped.ended} after {dripped.seconds:.1f} s")]

    async def cancel(self) -> None:
        """End it now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
