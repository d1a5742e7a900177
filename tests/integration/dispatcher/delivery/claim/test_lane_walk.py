"""A random walk through everything that can happen to lanes, on a real database.

After each step every lane is looked at: it moved only as the table of `rules.lifecycle`
allows. At the end everything is delivered: in order, once on record, with attempts numbered
without a gap.
"""

import random
from collections import defaultdict
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.decide import release, settle
from holdfast.dispatcher.delivery.rules.lifecycle import TRANSITIONS
from holdfast.dispatcher.delivery.rules.values import Attempt, ClaimRequest, Lane
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.outbound.endpoint import Endpoint
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.support.dispatch.delivery import expire_leases, lanes, make_due
from tests.support.job.decisions import Decisions
from tests.support.world import World

SUBJECTS = [f"m_{n}" for n in range(6)]
ENDPOINT = Endpoint(
    1, "payouts", "http://127.0.0.1:1/", (), 1, 2, 64, (5,) * 1000, OrderPolicy.STOP
)
LEGAL = {(source, target) for (source, _), targets in TRANSITIONS.items() for target in targets} | {
    (None, LaneState.DUE)
}
STEPS = 120


class Walk:
    """The state of one walk."""

    def __init__(
        self, seed: int, store: PostgresStore, db: psycopg.Connection, decisions: Decisions
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a walk that can be walked again
        self.store = store
        self.db = db
        self.decisions = decisions
        self.held: list[Lane] = []
        self.states: dict[str, LaneState] = {}

    async def write(self) -> None:
        self.decisions.write(*self.random.choices(SUBJECTS, k=self.random.randint(1, 5)))

    async def route(self) -> None:
        await self.store.route(self.random.randint(1, 3))

    async def claim(self) -> None:
        count, entries = self.random.randint(1, 4), self.random.randint(1, 4)
        self.held += (
            await self.store.claim(ClaimRequest({1: count}, uuid4(), 30, entries), 0)
        ).lanes

    async def settle(self) -> None:
        turns = self.random.sample(self.held, self.random.randint(0, len(self.held)))
        self.held = [lane for lane in self.held if lane not in turns]
        results = [
            settle(lane, self.tried(lane), ENDPOINT, draw=self.random.random()) for lane in turns
        ]
        if results:
            await self.store.settle(results, repeated=False)

    async def release(self) -> None:
        if self.held:
            await self.store.settle([release(self.held.pop())], repeated=False)

    async def expire(self) -> None:
        """Dispatchers that die keep their lanes in `held`: some settle too late."""
        expire_leases(self.db)
        await self.store.rescue(self.random.randint(1, 8))

    async def wait(self) -> None:
        make_due(self.db)

    def tried(self, lane: Lane) -> list[Attempt]:
        tried = []
        for entry in lane.entries:
            outcome = self.random.choice([Outcome.DELIVERED, Outcome.FAILED, Outcome.UNKNOWN])
            status = 200 if outcome is Outcome.DELIVERED else None
            tried.append(
                Attempt(entry.sequence, entry.number, entry.key, outcome, status, 1, *[None] * 3)
            )
            if outcome is not Outcome.DELIVERED or self.random.random() < 0.2:
                break
        return tried

    def look(self) -> None:
        for subject, lane in lanes(self.db).items():
            before = self.states.get(subject)
            assert before is lane.state or (before, lane.state) in LEGAL, (before, lane.state)
            self.states[subject] = lane.state

    async def finish(self) -> None:
        expire_leases(self.db)
        while any(lane.delivered < lane.last for lane in lanes(self.db).values()):
            await self.store.rescue(100)
            make_due(self.db)
            for lane in (await self.store.claim(ClaimRequest({1: 100}, uuid4(), 30, 8), 0)).lanes:
                tried = [
                    Attempt(e.sequence, e.number, e.key, Outcome.DELIVERED, 200, 1, *[None] * 3)
                    for e in lane.entries
                ]
                await self.store.settle([settle(lane, tried, ENDPOINT, draw=0.5)], repeated=False)


@pytest.mark.parametrize("seed", range(3))
async def test_lanes_move_as_the_table_says_and_attempts_have_no_gap(
    world: World, store: PostgresStore, seed: int
) -> None:
    assert world.add_endpoint(ENDPOINT.url) == 1
    with Decisions(world.dsn) as decisions:
        walk = Walk(seed, store, world.db, decisions)
        steps = [walk.write, walk.route, walk.claim, walk.claim, walk.settle, walk.settle]
        steps += [walk.release, walk.expire, walk.wait]
        for _ in range(STEPS):
            await walk.random.choice(steps)()
            walk.look()
        while (await store.route(16)).batches:
            pass
        await walk.finish()
    written = world.db.execute("SELECT count(*) FROM holdfast.entry").fetchone()
    of_entry = defaultdict(list)
    for row in world.attempts():
        of_entry[row.subject, row.sequence].append(row)
    assert (len(of_entry),) == written
    for tries in of_entry.values():
        assert [row.number for row in tries] == list(range(1, len(tries) + 1))
        assert [row.outcome for row in tries].count("delivered") == 1
        assert tries[-1].outcome == "delivered"
