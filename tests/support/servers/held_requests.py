"""Requests that a proxy holds before a server, chosen by their first line."""

import asyncio
import re
from dataclasses import dataclass

from tests.support.servers.fault_proxy import FaultProxy, Line, Way
from tests.support.waiting import eventually


@dataclass
class _Hold:
    pattern: re.Pattern[bytes]
    is_met: bool = False
    is_released: bool = False


class HeldRequests:
    """Holds requests; each hold has a number."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._holds: list[_Hold] = []
        proxy.script = lambda _number: self._fault

    async def _fault(self, way: Way, data: bytes, _line: Line) -> bytes:
        if way is Way.UP:
            for hold in self._holds:
                if not hold.is_met and hold.pattern.search(data):
                    hold.is_met = True
                    while not hold.is_released:  # noqa: ASYNC110 - by another thread
                        await asyncio.sleep(0.001)
                    break
        return data

    def hold(self, match: str, *, carried_out: bool = False) -> int:
        """Hold the next request that matches before it is carried out."""
        assert not carried_out, "only before it is carried out"
        # The line of a request has a `?` only where there is a query.
        self._holds.append(_Hold(re.compile(match.replace(r"\?", "[ ?]").encode(), re.MULTILINE)))
        return len(self._holds) - 1

    def is_met(self, rule: int) -> bool:
        return self._holds[rule].is_met

    def met(self, count: int) -> None:
        """Wait until so many of the holds have met their request."""
        eventually(lambda: sum(each.is_met for each in self._holds) >= count)

    def release(self, rule: int | None = None) -> None:
        """Let the request of a hold continue; without one every request, and forget all holds."""
        if rule is not None:
            self._holds[rule].is_released = True
            return
        holds, self._holds = self._holds, []
        for each in holds:
            each.is_released = True
