"""Claimed lanes inside this process: how many there may be, and which of them are being sent.

Each endpoint has its own slots, so a receiver that hangs blocks only its own slots. The process's
concurrency is divided among the endpoints. Beyond its slots, an endpoint's lanes are claimed ahead
only up to the number that it completed within the last second, or under a rate within a tenth of
it: a slow receiver's lanes stay in the database, where another dispatcher can claim them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from holdfast.dispatcher.delivery.endpoints import Ready
from holdfast.dispatcher.delivery.rules.replays import spare
from holdfast.dispatcher.delivery.rules.values import Lane
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS

WORTH_SHARE = 2
"""While lanes of an endpoint wait here, more are claimed once 1/N of its capacity is free: the cost
of a claim does not depend on its number of lanes."""

NOT_PACED: Mapping[int, int] = MappingProxyType({})


@dataclass(slots=True)
class _Pace:
    """Lanes completed in the current and in the last whole second."""

    second: int = 0
    now: int = 0
    before: int = 0

    def count(self, second: int) -> None:
        self.turn(second)
        self.now += 1

    def turn(self, second: int) -> int:
        """Return the lanes per second, as of `second`."""
        if second != self.second:
            self.before = self.now if second == self.second + 1 else 0
            self.second, self.now = second, 0
        return max(self.before, self.now)


@dataclass(slots=True)
class _Slots:
    limit: int = 1
    held: int = 0
    running: int = 0
    last_claim: int = 0
    """The number of the last claim that had room for this endpoint."""
    more_due: bool = False
    """Whether the last claim filled the free capacity, so more may be due."""
    paced: bool = False
    """Whether it has a rate limit."""
    rate_used_up: bool = False
    """Whether the last claim took all that the rate allowed, so more may be due."""
    waiting: deque[Lane] = field(default_factory=deque)
    pace: _Pace = field(default_factory=_Pace)


class Flow:
    """The lanes that this process leases, until they are settled."""

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
        """`send` sends and settles one lane and returns whether anything was tried.

        `crashed` is called with an exception of `send`. `room` is called when a lane completes and
        more of its endpoint may be due, and by `request_claim`.
        """
        self._concurrency = concurrency
        self._claim_lanes = claim_lanes
        self._send = send
        self._room = room
        self._crashed = crashed
        self._clock = clock
        self._slots: dict[int, _Slots] = {}
        self._claims = 0
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def sending(self) -> int:
        """Number of lanes being sent."""
        return len(self._running)

    @property
    def held(self) -> int:
        """Number of lanes that are claimed and not settled."""
        return sum(slots.held for slots in self._slots.values())

    def claimable(self, ready: Mapping[int, Ready]) -> dict[int, int]:
        """Return how many lanes may be claimed now, by endpoint, without endpoints at 0."""
        if self._closed or not ready:
            return {}
        share = max(1, self._concurrency // len(ready))
        second, lanes_left = int(self._clock()), self._claim_lanes
        lane_counts: dict[int, int] = {}
        self._claims += 1
        # Endpoints skipped last time come first, then those that hold fewest lanes.
        for id_ in sorted(ready, key=self._claim_order):
            slots = self._at(id_)
            slots.limit = min(share, ready[id_].endpoint.concurrency)
            count = min(lanes_left, self._free(slots, second))
            if count > 0:
                lane_counts[id_] = count
                lanes_left -= count
                slots.last_claim = self._claims
        return lane_counts

    def take(
        self,
        lanes: Iterable[Lane],
        counts_wanted: Mapping[int, int],
        paced: Mapping[int, int] = NOT_PACED,
    ) -> None:
        """Accept the lanes of a claim for `counts_wanted`, and start one in each free slot.

        `paced` maps each endpoint with a rate limit to the number of lanes that the limit allowed.
        """
        counts = dict.fromkeys(counts_wanted, 0)
        for lane in lanes:
            slots = self._at(lane.endpoint_id)
            slots.waiting.append(lane)
            slots.held += 1
            counts[lane.endpoint_id] += 1
        for id_, count in counts.items():
            slots = self._at(id_)
            slots.more_due = count == counts_wanted[id_]
            slots.paced = id_ in paced
            allowed = paced.get(id_)
            if allowed is None:
                slots.rate_used_up = False
            elif allowed:  # at 0, it is unknown whether any lane was due
                slots.rate_used_up = count >= allowed
            self._start(slots)

    def settled(self, lane_endpoint_id: int) -> None:
        """Forget a lane that is settled, or whose result was dropped."""
        self._at(lane_endpoint_id).held -= 1

    def spare(self, ready: Mapping[int, Ready]) -> dict[int, int]:
        """Return how many slots live lanes do not need, by endpoint, without endpoints at 0.

        An endpoint has none while its lanes wait, here or, by its last claim, in the database.
        """
        if self._closed or not ready:
            return {}
        share = max(1, self._concurrency // len(ready))
        free = {}
        for id_, each in ready.items():
            slots = self._at(id_)
            limit = min(share, each.endpoint.concurrency)
            if not slots.more_due and not slots.rate_used_up and not slots.waiting:
                free[id_] = spare(limit - slots.held, limit)
        return {id_: count for id_, count in free.items() if count}

    def request_claim(self) -> None:
        """Have lanes claimed now that have just become due."""
        self._room()

    def lend(self, endpoint_id: int) -> None:
        """Lend a slot to a replay item."""
        slots = self._at(endpoint_id)
        slots.held += 1
        slots.running += 1

    def returned(self, endpoint_id: int) -> None:
        """Take a lent slot back, and start a lane that waits for one."""
        slots = self._at(endpoint_id)
        slots.held -= 1
        slots.running -= 1
        self._start(slots)

    def close(self) -> list[Lane]:
        """Start no more lanes; returns those of which nothing was sent."""
        self._closed = True
        unsent = [lane for slots in self._slots.values() for lane in slots.waiting]
        for slots in self._slots.values():
            slots.waiting.clear()
        return unsent

    def abort(self) -> None:
        """Cancel the requests in flight."""
        for task in self._running:
            task.cancel()

    async def quiet(self) -> None:
        """Wait until nothing is being sent."""
        await self._quiet.wait()

    def _free(self, slots: _Slots, second: int) -> int:
        """Return how many lanes may be claimed; 0 while they are too few for an efficient claim."""
        per_second = slots.pace.turn(second)
        # Under a rate limit, lanes that are not started soon are released.
        lanes_max = slots.limit + (int(per_second * BEGIN_SECONDS) if slots.paced else per_second)
        free = max(0, lanes_max - slots.held)
        worth = not slots.waiting or free >= min(lanes_max, self._claim_lanes) // WORTH_SHARE
        return free if worth else 0

    def _claim_order(self, endpoint_id: int) -> tuple[int, int, int]:
        slots = self._at(endpoint_id)
        return slots.last_claim, slots.held, endpoint_id

    def _at(self, endpoint_id: int) -> _Slots:
        return self._slots.setdefault(endpoint_id, _Slots())

    def _start(self, slots: _Slots) -> None:
        idle = min(len(slots.waiting), slots.limit - slots.running)
        for _ in range(idle):
            slots.running += 1
            task = asyncio.create_task(self._send_on(slots))
            self._running.add(task)
            self._quiet.clear()
            task.add_done_callback(partial(self._done, slots))

    async def _send_on(self, slots: _Slots) -> None:
        """Send lane after lane: a task for each would cost as much as a request."""
        while slots.waiting and slots.running <= slots.limit:
            sent = False
            try:
                sent = await self._send(slots.waiting.popleft())
            except Exception as error:  # noqa: BLE001 - the other lanes continue
                slots.held -= 1  # it is never settled; its lease ends
                self._crashed(error)
            second = int(self._clock())
            if sent:  # a released lane says nothing about the receiver's speed
                slots.pace.count(second)
            if slots.more_due and self._free(slots, second):
                self._room()

    def _done(self, slots: _Slots, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        slots.running -= 1
        # A task that was cancelled before it started left its lane in `waiting`.
        self._start(slots)
        if not self._running:
            self._quiet.set()
