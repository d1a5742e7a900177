"""Two dispatchers, two streams of the same subjects and an operator, in an order that chance makes.

Nothing may fail, whatever the order; each entry arrives, and first arrivals are in the order of
their sequences; the check that operators run finds nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import settle
from holdfast.dispatcher.delivery.rules.replays import ReplayRequest
from holdfast.dispatcher.delivery.rules.values import Attempt, ClaimRequest, Lane, Settlement
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.check.actions import check
from holdfast.dispatcher.operators.check.rules import Checked
from holdfast.dispatcher.operators.check.store import Checks
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters
from holdfast.dispatcher.operators.endpoints.settings import DEFAULTS
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.delivery import ALL, DEAD, expire_leases, lanes, make_due
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.job.decisions import Decisions

pytestmark = pytest.mark.rest

STEPS = 120
SUBJECTS = ("m_1", "m_2", "m_3")
TYPES: tuple[list[str], ...] = ([], [BLOCK], [RELEASE], [BLOCK, RELEASE])
STREAMS: tuple[list[str], ...] = ([], ["first"], ["second"], ["first", "second"])
FAILURES = (Outcome.FAILED, Outcome.REJECTED, Outcome.UNKNOWN, Outcome.REFUSED, Outcome.GONE)
EXPIRE_ITEMS = """
    UPDATE holdfast.replay_item SET lease_until = now() - interval '1 second'
    WHERE token IS NOT NULL
"""
DELIVERED = """
    SELECT l.endpoint_id, l.subject_id, l.delivered_sequence
    FROM holdfast.lane l JOIN holdfast.endpoint e ON e.id = l.endpoint_id WHERE e.name = %s
"""
OPEN_DEAD = "SELECT id FROM holdfast.dead_letter WHERE resolution IS NULL"
LEFT_DEAD = """
    SELECT d.id FROM holdfast.dead_letter d JOIN holdfast.endpoint p ON p.id = d.endpoint_id
    JOIN holdfast.entry e
        ON (e.subject_id, e.sequence, e.created_at) = (d.subject_id, d.sequence, d.created_at)
    JOIN holdfast.batch b USING (batch_no)
    WHERE d.resolution IS NULL AND (p.types <> '{}' AND NOT e.type = ANY (p.types)
        OR p.streams <> '{}' AND NOT b.stream = ANY (p.streams))"""
PLANNED = "SELECT id FROM holdfast.replay WHERE state IN ('applying', 'planned')"
APPLYING = "SELECT id FROM holdfast.replay WHERE state = 'applying'"
UNROUTED = "SELECT batch_no FROM holdfast.batch WHERE routed_at IS NULL"
HOLD = "SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE SKIP LOCKED"

Result = tuple[Settlement, bool]
"""What a lane came to, and whether it is a replay's item."""


@dataclass
class World:
    """What is there, and what the receivers saw."""

    dsn: str
    db: psycopg.Connection
    holder: psycopg.Connection
    chance: Random
    streams: tuple[Decisions, Decisions]
    stores: list[PostgresStore]
    endpoints: dict[int, Endpoint] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    arrived: defaultdict[tuple[int, int], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    written: int = 0

    @property
    def store(self) -> PostgresStore:
        """One of the dispatchers."""
        return self.chance.choice(self.stores)

    def add(self, name: str, policy: OrderPolicy, *, from_beginning: bool) -> None:
        """Add an endpoint, as an operator does."""
        row = {
            "name": name,
            "url": "http://127.0.0.1:1/",
            "secret_refs": [f"env:{SECRET}"],
            "schedule_seconds": [0],
            "order_policy": policy.value,
            "breaker_threshold": self.chance.choice([0, 2]),
            "slow_start_seconds": 1,
            "types": [] if name == "all" else self.chance.choice(TYPES),
            "streams": [] if name == "all" else self.chance.choice(STREAMS),
        }
        with Endpoints.connect(self.dsn) as operator:
            operator.add_endpoint({**DEFAULTS, **row}, from_beginning=from_beginning, reason="test")
        (id_,) = self.db.execute(
            "SELECT id FROM holdfast.endpoint WHERE name = %s", [name]
        ).fetchone() or (0,)
        self.endpoints[id_] = Endpoint(id_, name, str(row["url"]), (), 1, 2, 64, (0,), policy)

    def result(self, lane: Lane, *, item: bool, good: bool = False) -> Settlement:
        """Let a receiver see the first of a lane's entries; returns what is to be settled."""
        count = len(lane.entries) if good else self.chance.randint(0, len(lane.entries))
        sent = lane.entries[:count]
        tried = []
        for place, entry in enumerate(sent, 1):
            outcome = Outcome.DELIVERED
            if place == count and not good and self.chance.random() < 0.5:
                outcome = self.chance.choice(FAILURES)
            status = {Outcome.DELIVERED: 200, Outcome.FAILED: 500, Outcome.REJECTED: 400}
            tried.append(
                Attempt(
                    *(entry.sequence, entry.number, entry.key, outcome, status.get(outcome)),
                    *(3, None, None, None),
                )
            )
            if not item:
                self._see(lane, entry.sequence)
        endpoint = self.endpoints[lane.endpoint_id]
        settlement = settle(lane, tried, endpoint, draw=self.chance.random())
        return replace(settlement, dead=None) if item else settlement  # as the engine does

    def forget_unsettled(self, name: str) -> None:
        """A lane goes on from what is on record as delivered, with what another filter takes."""
        for endpoint_id, subject_id, delivered in self.db.execute(DELIVERED, [name]):
            seen = self.arrived[endpoint_id, subject_id]
            seen[:] = [sequence for sequence in seen if sequence <= delivered]

    def _see(self, lane: Lane, sequence: int) -> None:
        seen = self.arrived[lane.endpoint_id, lane.subject_id]
        if sequence not in seen:
            assert not seen or seen[-1] < sequence, (lane, seen)
            seen.append(sequence)


async def _write(world: World) -> None:
    stream = world.chance.choice(world.streams)
    rows = []
    for subject in world.chance.choices(SUBJECTS, k=world.chance.randint(1, 4)):
        world.written += 1
        key = ["random", str(world.written)]
        rows.append(stream.row(subject, world.chance.choice([BLOCK, RELEASE]), key=key))
    batch_no = stream.write_rows(rows).batch_no
    priority = world.chance.randint(0, 2)
    world.db.execute(
        "UPDATE holdfast.entry SET priority = %s WHERE batch_no = %s", [priority, batch_no]
    )


async def _hold(world: World) -> None:
    """Have another router take a batch and take its time."""
    if unrouted := world.db.execute(UNROUTED).fetchall():
        world.holder.execute(HOLD, world.chance.choice(unrouted))


async def _let_go(world: World) -> None:
    world.holder.rollback()


async def _route(world: World) -> None:
    await world.store.route(world.chance.choice([1, 2, 256]))


async def _claim(world: World, *, good: bool = False) -> None:
    room = dict.fromkeys(world.endpoints, world.chance.randint(1, 4))
    count = world.chance.randint(1, 4)
    claim = await world.store.claim(ClaimRequest(room, uuid4(), 30, count), 0)
    assert not claim.gaps
    world.results += [(world.result(lane, item=False, good=good), False) for lane in claim.lanes]


async def _route_and_claim(world: World) -> None:
    room = dict.fromkeys(world.endpoints, world.chance.randint(1, 4))
    done = await world.store.route_and_claim(ClaimRequest(room, uuid4(), 30, 2), 0)
    if done is not None:
        assert not done[1].gaps
        world.results += [(world.result(lane, item=False), False) for lane in done[1].lanes]


async def _claim_items(world: World, *, good: bool = False) -> None:
    wanted = ReplayRequest(dict.fromkeys(world.endpoints, 4), uuid4(), 30)
    turn = await world.store.claim_replays(wanted, 0)
    world.results += [(world.result(lane, item=True, good=good), True) for lane in turn.lanes]


async def _settle(world: World) -> None:
    """Store some of what came back, perhaps after its lease ran out, and perhaps once more."""
    world.chance.shuffle(world.results)
    count = world.chance.randint(1, 4)
    some, world.results = world.results[:count], world.results[count:]
    store = world.store
    for repeated in (False, True)[: world.chance.randint(1, 2)]:
        if live := [result for result, item in some if not item]:
            await store.settle(live, repeated=repeated)
        if items := [result for result, item in some if item]:
            await store.settle_replays(items, repeated=repeated)


async def _crash(world: World) -> None:
    """Lose results; what was under a lease runs out, also that of others."""
    world.results = [each for each in world.results if world.chance.random() < 0.5]
    expire_leases(world.db)
    world.db.execute(EXPIRE_ITEMS)


async def _rescue(world: World) -> None:
    store = world.store
    await store.rescue(world.chance.choice([1, 256]))
    await store.rescue_replays(world.chance.choice([1, 256]))


async def _wait(world: World) -> None:
    """Let time pass for retries and breakers."""
    make_due(world.db)
    world.db.execute(
        "UPDATE holdfast.endpoint_pace SET breaker_until = now() WHERE breaker <> 'closed'"
    )


async def _set_state(world: World) -> None:
    name = world.chance.choice([each.name for each in world.endpoints.values()])
    with Endpoints.connect(world.dsn) as operator:
        state = world.chance.choice(["paused", "disabled", "active", "active"])
        operator.set_endpoint_state(name, state, "test")


async def _retype(world: World) -> None:
    with Endpoints.connect(world.dsn) as operator:
        operator.set_endpoint_state("some", "paused", "test")
        choice = {"types": world.chance.choice(TYPES), "streams": world.chance.choice(STREAMS)}
        try:
            operator.set_endpoint("some", lambda row: {**row, **choice}, "test")
        except CommandError as error:
            if "in flight" not in str(error):
                raise
        else:
            world.forget_unsettled("some")
        operator.set_endpoint_state("some", "active", "test")


async def _dismiss(world: World) -> None:
    ids = [id_ for (id_,) in world.db.execute(OPEN_DEAD)]
    if ids:
        with DeadLetters.connect(world.dsn) as dead:
            dead.dismiss(
                world.chance.sample(ids, world.chance.randint(1, len(ids))), "x", skip=True
            )


async def _replay(world: World) -> None:
    """Plan and apply a replay; one that has nothing to do, or is another's, is refused."""
    with Replays.connect(world.dsn) as store:
        try:
            wanted = replace(world.chance.choice([DEAD, ALL]), endpoint=None, subject="m_1")
            id_: UUID = store.plan(wanted, reason="test")["id"]
            store.apply(id_)
        except CommandError as error:
            if error.exit_code is ExitCode.USAGE:
                raise


async def _cancel(world: World) -> None:
    """End every replay with what it has in flight; perhaps begin another of the same entries."""
    for (id_,) in world.db.execute(PLANNED).fetchall():
        with Replays.connect(world.dsn) as store:
            store.cancel(id_, "test")
    if world.chance.random() < 0.7:
        await _replay(world)
        await _claim_items(world)


async def _backfill(world: World) -> None:
    with Endpoints.connect(world.dsn) as operator:
        operator.backfill("some")


async def _together(world: World) -> None:
    """Let both dispatchers do something at once."""
    loops = (_route, _claim, _route_and_claim, _settle, _rescue, _claim_items)
    await asyncio.gather(*(world.chance.choice(loops)(world) for _ in range(3)))


MOVES: dict[Callable[[World], Awaitable[None]], int] = {
    _write: 14,
    _hold: 5,
    _let_go: 4,
    _route: 10,
    _claim: 16,
    _route_and_claim: 10,
    _settle: 16,
    _claim_items: 5,
    _crash: 3,
    _rescue: 4,
    _wait: 5,
    _set_state: 3,
    _retype: 2,
    _dismiss: 2,
    _replay: 3,
    _cancel: 3,
    _backfill: 1,
    _together: 12,
}


def _replay_dead(world: World) -> None:
    """Replay the dead letters; dismiss those that their endpoint no longer takes."""
    with Replays.connect(world.dsn) as operator:
        try:
            wanted = replace(DEAD, endpoint=None)
            operator.apply(operator.plan(wanted, reason="test")["id"])
        except CommandError as error:
            if error.exit_code is not ExitCode.NOTHING_MATCHED:
                raise
        else:
            return
    left = world.db.execute(LEFT_DEAD).fetchall()
    assert left, "each dead letter is one that its endpoint takes"
    with DeadLetters.connect(world.dsn) as dead:
        dead.dismiss([id_ for (id_,) in left], "its endpoint takes others", skip=True)


async def _finish(world: World) -> None:
    """Heal everything and deliver what is left, with receivers that take everything."""
    world.holder.rollback()
    for endpoint in world.endpoints.values():
        with Endpoints.connect(world.dsn) as operator:
            operator.set_endpoint_state(endpoint.name, "active", "test")
    end = seconds() + 60
    while not _idle(world):
        assert seconds() < end, lanes(world.db)
        world.results.clear()
        await _crash(world)
        await _wait(world)
        store = world.store
        await store.rescue(256)
        await store.rescue_replays(256)
        await store.route(256)
        await _wait(world)
        await _claim(world, good=True)
        await _claim_items(world, good=True)
        while world.results:
            await _settle(world)
        world.db.execute("UPDATE holdfast.replay_item SET due_at = now() WHERE due_at IS NOT NULL")
        if world.db.execute(OPEN_DEAD).fetchall() and not world.db.execute(APPLYING).fetchall():
            _replay_dead(world)


def _idle(world: World) -> bool:
    states = {lane.state for id_ in world.endpoints for lane in lanes(world.db, id_).values()}
    left = [*world.db.execute(OPEN_DEAD), *world.db.execute(APPLYING), *world.db.execute(UNROUTED)]
    return states <= {LaneState.IDLE} and not left


@asynccontextmanager
async def _stores(dsn: str, count: int) -> AsyncIterator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(count):
            store = PostgresStore(dsn, 4)
            await store.open()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield stores


async def _play(world: World, trail: list[str]) -> None:
    async with _stores(world.dsn, 2) as world.stores:
        for step in range(STEPS):
            if step == STEPS // 4:
                policy = world.chance.choice(list(OrderPolicy))
                await asyncio.to_thread(world.add, "some", policy, from_beginning=True)
            move = world.chance.choices(list(MOVES), list(MOVES.values()))[0]
            if move in (_retype, _backfill) and len(world.endpoints) == 1:
                continue
            trail.append(move.__name__)
            if move in (_retype, _backfill):
                # They wait for routing to end, which a new connection runs in this loop.
                await asyncio.to_thread(asyncio.run, move(world))
            else:
                await move(world)
        trail.append("finish")
        await _finish(world)


@pytest.mark.parametrize("seed", [0, 5, 10, 11])
def test_random_interleavings_never_fail_and_keep_order(
    dsn: str, db: psycopg.Connection, seed: int
) -> None:
    trail: list[str] = []
    with (
        psycopg.connect(dsn) as holder,
        Decisions(dsn, "first") as first,
        Decisions(dsn, "second") as second,
    ):
        chance = Random(seed)  # noqa: S311 - an order, not a secret
        world = World(dsn, db, holder, chance, (first, second), [])
        world.add("all", world.chance.choice(list(OrderPolicy)), from_beginning=False)
        try:
            asyncio.run(_play(world, trail))
        except BaseException as error:
            error.add_note(f"seed {seed}: {' '.join(trail)}")
            raise
    checked = Checked(20)
    with Checks.connect(dsn) as store, Checks.connect(dsn) as beside:
        range_ = store.range(When(back=timedelta(days=1)), When(), None, None)
        check((store, beside), range_, checked, lambda *_: None)
    assert checked.holds, checked.kept
    everything = next(id_ for id_, each in world.endpoints.items() if each.name == "all")
    for subject_id, last in db.execute("SELECT id, last_sequence FROM holdfast.subject"):
        assert world.arrived[everything, subject_id] == list(range(1, last + 1))
