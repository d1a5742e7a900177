"""The cost of a claim and its settlement in the dispatcher's store, without HTTP.

By entries that wait (`growth`), and while another session holds an old snapshot (`snapshot`).
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import psycopg

from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.values import Attempt, Lane, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.clock import seconds
from holdfast.sink.contract.states import Outcome
from tests.benchmarks.common.database import fresh
from tests.benchmarks.common.runs import spread
from tests.benchmarks.dispatch import jobs
from tests.benchmarks.dispatch.sizes import Sizes
from tests.benchmarks.dispatch.waiting import fill, table_bytes
from tests.benchmarks.sink.rounds import checkpoint
from tests.benchmarks.sink.server import Server

LANES: Final = 32
"""Lanes of one claim."""
ENTRIES_PER_LANE: Final = 8
LEASE_SECONDS: Final = 60.0

HOT_SUBJECTS: Final = 5_000
FEED_S: Final = 1.0
"""How often new entries come in while a snapshot is held."""
FEED_ENTRIES: Final = 1_000


@dataclass
class Point:
    """A database with so many entries that wait, and what its turns cost."""

    waiting: int
    dsn: str
    claim_us: list[float] = field(default_factory=list)
    settle_us: list[float] = field(default_factory=list)


def growth(sizes: Sizes, server: Server) -> list[dict[str, Any]]:
    """Return a point for each number of waiting entries: microseconds an entry."""
    with ExitStack() as stack:
        points = []
        for waiting in sizes.waiting:
            dsn = stack.enter_context(fresh(server.dsn))
            fill(dsn, waiting, sizes.connections)
            points.append(Point(waiting, dsn))
            print(f"  {waiting:,} entries wait", flush=True)
        checkpoint(server.dsn)
        for number in range(sizes.rounds + 1):
            for point in points:
                turns = asyncio.run(_turns(point.dsn, sizes.claims))
                if number:  # the first round warms caches and statistics
                    point.claim_us += [each.claim_us for each in turns]
                    point.settle_us += [each.settle_us for each in turns]
        return [_figures(point) for point in points]


def snapshot(sizes: Sizes, server: Server) -> dict[str, Any]:
    """Return the cost without and with a session that holds an old snapshot, under load."""
    found: dict[str, Any] = {"minutes": sizes.held_minutes}
    for name, held in (("free", False), ("held", True)):
        with fresh(server.dsn) as dsn:
            fill(dsn, HOT_SUBJECTS, sizes.connections, each=1)
            checkpoint(server.dsn)
            with holding(dsn, held=held):
                turns = asyncio.run(_under_load(dsn, sizes.held_minutes * 60))
            late = turns[-max(len(turns) // 5, 1) :]
            found[name] = {
                "us_per_entry": spread([each.claim_us + each.settle_us for each in late]),
                "claim_ms": spread([each.claim_us * each.entries / 1000 for each in late]),
                "turns": len(turns),
                "entries": sum(each.entries for each in turns),
                "table_bytes": table_bytes(dsn),
            }
            print(f"  {name}: {found[name]['us_per_entry']['median']:.0f} us an entry", flush=True)
    return found


@dataclass(frozen=True, slots=True)
class Turn:
    """One claim and the settlement of all that it took, by entry."""

    entries: int
    claim_us: float
    settle_us: float


async def _turns(dsn: str, count: int) -> list[Turn]:
    store = PostgresStore(dsn)
    await store.open()
    try:
        (row,) = await store.endpoints()
        # A new connection plans its statements first.
        turns = [await turn(store, row.endpoint) for _ in range(count + 2)][2:]
        return [each for each in turns if each]
    finally:
        await store.close()


async def _under_load(dsn: str, length_s: float) -> list[Turn]:
    """Claim and settle for so long, while new entries come in at a steady pace."""
    store, turns = PostgresStore(dsn), []
    await store.open()
    over = asyncio.Event()
    feeding = asyncio.create_task(_feed(dsn, store, over))
    try:
        (row,) = await store.endpoints()
        end = seconds() + length_s
        while seconds() < end and not feeding.done():
            done = await turn(store, row.endpoint)
            if done:
                turns.append(done)
            else:
                await asyncio.sleep(0.01)
    finally:
        over.set()
        try:
            await feeding
        finally:
            await store.close()
    return turns


async def _feed(dsn: str, store: PostgresStore, over: asyncio.Event) -> None:
    """Write a batch every second, as a job does, and route it, until it is `over`."""
    outbox = jobs.Outbox(dsn)
    try:
        for number in itertools.count():
            if over.is_set():
                return
            first = number * FEED_ENTRIES % HOT_SUBJECTS
            await asyncio.to_thread(outbox.write, range(first, first + FEED_ENTRIES))
            await store.route(1)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), FEED_S)
    finally:
        outbox.close()


async def turn(
    store: PostgresStore, endpoint: Endpoint, lanes: int = LANES, each: int = ENTRIES_PER_LANE
) -> Turn | None:
    """Claim lanes, with up to `each` entries of one, and settle them; None: nothing was due."""
    began = time.perf_counter()
    wanted = Wanted({endpoint.id: lanes}, uuid4(), LEASE_SECONDS, each)
    claim = await store.claim(wanted, seconds())
    claimed = time.perf_counter()
    entries = sum(len(lane.entries) for lane in claim.lanes)
    if not entries:
        return None
    results = [settle(lane, _delivered(lane), endpoint, draw=0.5) for lane in claim.lanes]
    prepared = time.perf_counter()
    settled = await store.settle(results, repeated=False)
    if len(settled) != len(results):
        raise RuntimeError(f"{len(results)} results went in and {len(settled)} were stored")
    settle_us = (time.perf_counter() - prepared) / entries * 1e6
    return Turn(entries, (claimed - began) / entries * 1e6, settle_us)


def _delivered(lane: Lane) -> Sequence[Attempt]:
    return [
        Attempt(
            sequence=entry.sequence,
            number=entry.number,
            key=entry.key,
            outcome=Outcome.DELIVERED,
            status=200,
            duration_ms=3,
            error=None,
            response=None,
            receipt=None,
            asked_seconds=None,
        )
        for entry in lane.entries
    ]


@contextmanager
def holding(dsn: str, *, held: bool) -> Iterator[None]:
    """Hold a snapshot, so that no vacuum can take away what is dead since."""
    if not held:
        yield
        return
    with psycopg.connect(dsn) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("SELECT count(*), pg_current_xact_id() FROM holdfast.lane")
        yield


def _figures(point: Point) -> dict[str, Any]:
    both = [sum(pair) for pair in zip(point.claim_us, point.settle_us, strict=True)]
    return {
        "waiting": point.waiting,
        "us_per_entry": spread(both),
        "claim_us": spread(point.claim_us),
        "settle_us": spread(point.settle_us),
        "table_bytes": table_bytes(point.dsn),
    }
