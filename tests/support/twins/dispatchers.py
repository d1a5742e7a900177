"""Dispatchers whose every step is taken when a test says so, made of the engine's own parts.

Store, sender, settlement and HTTP are the product's. What is left out are the loops, which decide
when a step is taken, and nothing else.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as WaitedTooLongError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from psycopg.conninfo import make_conninfo

from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.endpoints import Endpoints, Ready
from holdfast.dispatcher.delivery.holds import Holds
from holdfast.dispatcher.delivery.rules.replays import ReplayRequest
from holdfast.dispatcher.delivery.rules.values import (
    Attempt,
    ClaimRequest,
    Entry,
    Lane,
    Settled,
    Settlement,
)
from holdfast.dispatcher.delivery.sender import Sender
from holdfast.dispatcher.delivery.store.claiming import Claimer
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.scan_plan import BEGINNING
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.outbound.reference_rule import ReferenceRule
from holdfast.dispatcher.outbound.transport.engines import open_transport
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from tests.support.twins.receiver import Receiver, Request

T = TypeVar("T")
U = TypeVar("U")

LEASE_SECONDS = 600.0
"""Longer than an example takes: a lease ends when a step moves it."""

PATIENCE_SECONDS = 30.0


class Loop:
    """An event loop in a thread of its own, so that connections and requests stay alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which runs in the loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(PATIENCE_SECONDS)
        except WaitedTooLongError:
            future.cancel()
            raise

    def both(self, one: Coroutine[Any, Any, T], two: Coroutine[Any, Any, U]) -> tuple[T, U]:
        """Return the results of work that runs at once."""

        async def together() -> tuple[T, U]:
            done: tuple[T, U] = await asyncio.gather(one, two)
            return done

        return self.run(together())

    def close(self) -> None:
        """Stop; nothing runs any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(eq=False)
class Held:
    """A lane, or an item of a replay, that a dispatcher claimed."""

    lane: Lane
    is_item: bool
    task: "asyncio.Task[bool] | None" = None
    turn: "asyncio.Future[bool] | None" = None
    """What the sender waits for before its next attempt; False: it makes no further one."""
    request: Request | None = None
    """The request that is under way."""
    settlement: Settlement | None = None
    """What is to be settled; None while the sender has entries left."""

    may_trust: bool = True
    """Whether the lease is not over yet by the clock of this process."""
    is_repeated: bool = False
    """Whether an earlier try to store the result failed, and may have stored it."""

    def take_turn(self) -> "asyncio.Future[bool]":
        """Return the turn that the sender waits for; it is over then."""
        turn, self.turn = self.turn, None
        assert turn is not None, "the sender does not wait for its turn"
        return turn


class _SteppedSender(Sender):
    """Waits for its turn before each attempt; without one it gives the rest back."""

    holding: "dict[Claimed, Held]"

    async def _attempt(self, ready: Ready, lane: Lane, entry: Entry) -> Attempt | None:
        held, turn = self.holding[_claimed(lane)], asyncio.get_running_loop().create_future()
        held.turn = turn
        if not await turn:
            return None
        # In place of waiting until the process's own clock is there.
        timed = lane if held.may_trust else replace(lane, trusted_until=0.0)
        return await super()._attempt(ready, timed, entry)


Claimed = tuple[int, int, UUID]
"""Endpoint, subject and token."""


def _claimed(each: Lane | Settlement) -> Claimed:
    return each.endpoint_id, each.subject_id, each.token


class Dispatcher:
    """One process: its connections, what it holds in memory, and the requests that it sends.

    All methods that are coroutines run in the loop of the store.
    """

    def __init__(self, name: str, dsn: str, receiver: Receiver, references: ReferenceRule) -> None:
        """`references` are those to secrets that it may resolve."""
        self.name = name
        self._receiver = receiver
        self._references = references
        # One connection: where it is cut, no other one of this process is.
        self.store = PostgresStore(make_conninfo(dsn, application_name=self.application), 1)
        self._transport = open_transport("asyncio")
        self.held: dict[Claimed, Held] = {}

    @property
    def application(self) -> str:
        """The name of its connections."""
        return f"holdfast-dispatcher-{self.name}"

    async def open(self) -> None:
        """Connect."""
        await self.store.open()
        self._begin()

    async def close(self) -> None:
        """End as a process does that is killed, then free what the test process has of it."""
        await self.kill()
        await self._transport.close()
        await self.store.close()

    async def kill(self) -> None:
        """Lose everything in memory; requests that left stay under way. A new process begins."""
        lost, self.held = list(self.held.values()), {}
        tasks = [each.task for each in lost if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._begin()

    def _begin(self) -> None:
        telemetry, clock = Telemetry(), DatabaseClock()
        self.store._claimer = Claimer(self.store._sessions)
        self.store._expired_to = BEGINNING
        self.endpoints = Endpoints(
            self.store, self._transport, telemetry, LEASE_SECONDS, self._references
        )
        self._sender = _SteppedSender(
            self.endpoints,
            self._transport,
            telemetry,
            settle=self._keep,
            holds=Holds(),
            clock=clock,
        )
        self._sender.holding = self.held

    async def reconnect(self) -> None:
        """Wait until it has a connection again."""
        end = seconds() + PATIENCE_SECONDS
        while seconds() < end:
            with suppress(StoreUnavailableError):
                await self.store.endpoints()
                return

    async def load(self) -> None:
        """Load the endpoints, as each process does every second."""
        await self.endpoints.refresh()

    async def claim(self, lanes: int, entries: int) -> list[Held]:
        """Claim lanes of active endpoints, with a scan that misses none; hold them."""
        # A scan from a cursor may miss a lane for a second (CLAIM.md).
        self.store._claimer = Claimer(self.store._sessions)
        room = dict.fromkeys(self.endpoints.ready, lanes)
        request = ClaimRequest(room, uuid4(), LEASE_SECONDS, entries)
        claim = await self.store.claim(request, seconds())
        assert not claim.gaps, claim.gaps
        return [await self._hold(lane, is_item=False) for lane in claim.lanes]

    async def route_and_claim(self, lanes: int, entries: int) -> tuple[int, list[Held]] | None:
        """Route and claim in one transaction, as after a doorbell; None where that is not done.

        Returns the number of batches, and what it holds. May miss a lane behind a cursor.
        """
        room = dict.fromkeys(self.endpoints.ready, lanes)
        request = ClaimRequest(room, uuid4(), LEASE_SECONDS, entries)
        done = await self.store.route_and_claim(request, seconds())
        if done is None:
            return None
        routed, claim = done
        return routed.batches, [await self._hold(lane, is_item=False) for lane in claim.lanes]

    async def claim_replays(self, items: int) -> tuple[list[Held], int]:
        """Take items of replays; hold those to send. Returns them, and how many lanes moved."""
        room = dict.fromkeys(self.endpoints.ready, items)
        request = ReplayRequest(room, uuid4(), LEASE_SECONDS)
        turn = await self.store.claim_replays(request, seconds())
        return [await self._hold(lane, is_item=True) for lane in turn.lanes], turn.moved

    async def _hold(self, lane: Lane, *, is_item: bool) -> Held:
        held = self.held[_claimed(lane)] = Held(lane, is_item)
        held.task = asyncio.create_task(self._sender.send(lane))
        await _until(lambda: held.turn is not None or held.settlement is not None)
        return held

    async def send(self, held: Held) -> bool:
        """Begin the next attempt; returns whether a request arrived at the receiver."""
        held.take_turn().set_result(True)
        arrival = asyncio.create_task(self._receiver.arrival())
        await _until(lambda: arrival.done() or held.turn is not None or held.settlement is not None)
        if not arrival.done():
            arrival.cancel()
            return False
        held.request = arrival.result()
        return True

    async def answer(self, held: Held, reply: bytes | None) -> None:
        """Let the answer of a request arrive; None: its connection ends without one."""
        request, held.request = held.request, None
        assert request is not None, "no request is under way"
        request.decided.set_result(reply)
        await _until(lambda: held.turn is not None or held.settlement is not None)

    async def give_back(self, held: Held) -> None:
        """Send no further entry of a lane, as a dispatcher that stops or whose lease is short."""
        held.take_turn().set_result(False)
        await _until(lambda: held.settlement is not None)

    async def settle(self, each: Held) -> list[Settled]:
        """Store a result; returns it if it was stored. It leaves the memory of the process."""
        settlement = each.settlement
        assert settlement is not None, "it is not finished"
        store = self.store.settle_replays if each.is_item else self.store.settle
        settled = await store([settlement], repeated=each.is_repeated)
        self.held.pop(_claimed(each.lane), None)
        return settled

    def _keep(self, settlement: Settlement) -> None:
        held = self.held.get(_claimed(settlement))
        if held is not None:
            # As `Replayer` does: an exhausted item makes no dead letter.
            held.settlement = replace(settlement, dead=None) if held.is_item else settlement


async def _until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds."""
    end = seconds() + PATIENCE_SECONDS
    while not condition():
        assert seconds() < end, "it did not come"
        await asyncio.sleep(0.0002)
