"""Claimed lanes inside this process: how many there may be, which of them are being sent.

Each endpoint has its own berths, so a receiver that hangs takes up its own and nobody else's. The
process's concurrency is divided among the endpoints. Beyond its berths, an endpoint's lanes are
claimed ahead only as far as it got through within the last second, or under a rate within a tenth
of it: a slow receiver's lanes stay in the database, where another dispatcher can take them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from dispatcher.delivery.endpoints import Ready
from dispatcher.delivery.rules.replays import spare
from dispatcher.delivery.rules.values import Lane
from dispatcher.shared.clock import seconds
from dispatcher.shared.rate import BEGIN_SECONDS

WORTH_SHARE = 2
"""While lanes of an endpoint wait here, more are claimed when so much of what it may have is free:
each claim costs the same, however few lanes it takes."""

NOT_PACED: Mapping[int, int] = MappingProxyType({})


@dataclass(slots=True)
class _Pace:
    """Lanes finished in the current and in the last whole second."""

    second: int = 0
    now: int = 0
    before: int = 0

    def count(self, second: int) -> None:
        self.turn(second)
        self.now += 1

    def turn(self, second: int) -> int:
        """Return the pace in lanes a second, as of `second`."""
        if second != self.second:
            self.before = self.now if second == self.second + 1 else 0
            self.second, self.now = second, 0
        return max(self.before, self.now)


@dataclass(slots=True)
class _Berths:
    limit: int = 1
    held: int = 0
    running: int = 0
    asked: int = 0
    """The number of the last claim that had room for this endpoint."""
    hungry: bool = False
    """Whether the last claim took all there was room for, so that more may be due."""
    paced: bool = False
    """Whether it is sent to at a rate."""
    pressed: bool = False
    """Whether the last claim took all that the rate allowed, so that more may be due."""
    waiting: deque[Lane] = field(default_factory=deque)
    pace: _Pace = field(default_factory=_Pace)


class Flow:
    """The lanes that this process holds a lease on, until they are settled."""

    def __init__(
        self,
        concurrency: int,
        claim_lanes: int,
        *,
        send: Callable[[Lane], Coroutine[None, None, bool]],
        room: Callable[[], None],
        crashed: Callable[[BaseException], None],
        clock: Callable[[], float] = seconds,
    ) -> None:
        """`send` takes one lane to its settlement and says whether anything was tried.

        `crashed` hears of a fault in it. `room` is called when a lane is finished and more of its
        endpoint may be due, and by `look`.
        """
        self._concurrency = concurrency
        self._claim_lanes = claim_lanes
        self._send = send
        self._room = room
        self._crashed = crashed
        self._clock = clock
        self._berths: dict[int, _Berths] = {}
        self._asked = 0
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def sending(self) -> int:
        """How many lanes are being sent."""
        return len(self._running)

    @property
    def held(self) -> int:
        """How many lanes are claimed and not settled."""
        return sum(berths.held for berths in self._berths.values())

    def wanted(self, ready: Mapping[int, Ready]) -> dict[int, int]:
        """Return how many lanes of each endpoint may be claimed now, without those that may not."""
        if self._closed or not ready:
            return {}
        share = max(1, self._concurrency // len(ready))
        second, left = int(self._clock()), self._claim_lanes
        wanted: dict[int, int] = {}
        self._asked += 1
        # Whom the last full claim left out comes first, then who holds least.
        for id_ in sorted(ready, key=lambda id_: (self._at(id_).asked, self._at(id_).held, id_)):
            berths = self._at(id_)
            berths.limit = min(share, ready[id_].endpoint.concurrency)
            count = min(left, self._free(berths, second))
            if count > 0:
                wanted[id_] = count
                left -= count
                berths.asked = self._asked
        return wanted

    def take(
        self, lanes: Iterable[Lane], wanted: Mapping[int, int], paced: Mapping[int, int] = NOT_PACED
    ) -> None:
        """Accept what a claim of `wanted` returned, and start what there are berths for.

        `paced` are the endpoints that have a rate, with how many lanes it allowed.
        """
        counts = dict.fromkeys(wanted, 0)
        for lane in lanes:
            berths = self._at(lane.endpoint_id)
            berths.waiting.append(lane)
            berths.held += 1
            counts[lane.endpoint_id] += 1
        for id_, count in counts.items():
            berths = self._at(id_)
            berths.hungry = count == wanted[id_]
            berths.paced = id_ in paced
            allowed = paced.get(id_)
            if allowed is None:
                berths.pressed = False
            elif allowed:  # a rate that allowed none does not tell whether something was due
                berths.pressed = count >= allowed
            self._start(berths)

    def settled(self, lane_endpoint_id: int) -> None:
        """Forget a lane that is settled, or whose result is given up."""
        self._at(lane_endpoint_id).held -= 1

    def spare(self, ready: Mapping[int, Ready]) -> dict[int, int]:
        """Return how many berths of each endpoint live lanes can do without, where there are any.

        None while lanes of it wait, here or as far as the last claim knows in the database.
        """
        if self._closed or not ready:
            return {}
        share = max(1, self._concurrency // len(ready))
        free = {}
        for id_, each in ready.items():
            berths = self._at(id_)
            limit = min(share, each.endpoint.concurrency)
            if not berths.hungry and not berths.pressed and not berths.waiting:
                free[id_] = spare(limit - berths.held, limit)
        return {id_: count for id_, count in free.items() if count}

    def look(self) -> None:
        """Let lanes be claimed now that have just become due."""
        self._room()

    def lend(self, endpoint_id: int) -> None:
        """Give a berth to something that is no lane of the outbox."""
        berths = self._at(endpoint_id)
        berths.held += 1
        berths.running += 1

    def returned(self, endpoint_id: int) -> None:
        """Take a berth back, and start what waits for one."""
        berths = self._at(endpoint_id)
        berths.held -= 1
        berths.running -= 1
        self._start(berths)

    def close(self) -> list[Lane]:
        """Start nothing any more; returns the lanes of which nothing was sent."""
        self._closed = True
        unsent = [lane for berths in self._berths.values() for lane in berths.waiting]
        for berths in self._berths.values():
            berths.waiting.clear()
        return unsent

    def abort(self) -> None:
        """Cancel what is being sent."""
        for task in self._running:
            task.cancel()

    async def quiet(self) -> None:
        """Wait until nothing is being sent."""
        await self._quiet.wait()

    def _free(self, berths: _Berths, second: int) -> int:
        """Return how many lanes may be claimed; none while it would not be worth a claim."""
        ahead = berths.pace.turn(second)
        # Under a rate, what is not begun soon is given back.
        most = berths.limit + (int(ahead * BEGIN_SECONDS) if berths.paced else ahead)
        free = max(0, most - berths.held)
        worth = not berths.waiting or free >= min(most, self._claim_lanes) // WORTH_SHARE
        return free if worth else 0

    def _at(self, endpoint_id: int) -> _Berths:
        return self._berths.setdefault(endpoint_id, _Berths())

    def _start(self, berths: _Berths) -> None:
        idle = min(len(berths.waiting), berths.limit - berths.running)
        for _ in range(idle):
            berths.running += 1
            task = asyncio.create_task(self._send_on(berths))
            self._running.add(task)
            self._quiet.clear()
            task.add_done_callback(partial(self._done, berths))

    async def _send_on(self, berths: _Berths) -> None:
        """Send lane after lane: a task for each would take as long as a request of it."""
        while berths.waiting and berths.running <= berths.limit:
            sent = False
            try:
                sent = await self._send(berths.waiting.popleft())
            except Exception as error:  # noqa: BLE001 - the other lanes go on
                berths.held -= 1  # it will not be settled; its lease runs out
                self._crashed(error)
            second = int(self._clock())
            if sent:  # what is given back says nothing about how fast the receiver is
                berths.pace.count(second)
            if berths.hungry and self._free(berths, second):
                self._room()

    def _done(self, berths: _Berths, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        berths.running -= 1
        # One that was cancelled before it began has left its lane here.
        self._start(berths)
        if not self._running:
            self._quiet.set()
