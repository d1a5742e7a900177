"""Interleavings of dispatchers and operators that must neither fail for ever nor leave a lane."""

import asyncio
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.replays import ReplayWanted
from holdfast.dispatcher.delivery.rules.values import Lane, Wanted
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters, Filter
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import Outcome
from tests.integration.dispatcher.delivery.store.test_store import judged
from tests.support.dispatch.delivery import lanes, make_due, stored
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.entries import BLOCK, RELEASE
from tests.support.dispatch.replaying import DEAD, DELIVERED, applied, progress
from tests.support.job.decisions import Decisions

URL = "http://127.0.0.1:1/"
DEAD_LETTERS = "SELECT sequence, resolution::text FROM holdfast.dead_letter"
PATIENCE_SECONDS = 60
EXPIRE_ITEMS = """
    UPDATE holdfast.replay_item SET lease_until = now() - interval '1 second'
    WHERE token IS NOT NULL
"""


async def claimed(store: PostgresStore, endpoint_id: int, entries: int = 8) -> list[Lane]:
    claim = await store.claim(Wanted({endpoint_id: 100}, uuid4(), 30, entries), 0)
    return list(claim.lanes)


async def claimed_items(store: PostgresStore, endpoint_id: int) -> list[Lane]:
    turn = await store.claim_replays(ReplayWanted({endpoint_id: 8}, uuid4(), 30), 0)
    return list(turn.lanes)


def numbers(lane: Lane) -> list[tuple[int, int]]:
    return [(entry.sequence, entry.number) for entry in lane.entries]


def retype(dsn: str, *types: str) -> None:
    """Change the types of an endpoint that is paused for it."""
    with Endpoints.connect(dsn) as store:
        store.set_endpoint_state("payouts", "paused", "test")
        store.set_endpoint("payouts", lambda row: {**row, "types": [*types]}, "test")
        store.set_endpoint_state("payouts", "active", "test")


def test_entry_that_a_cancelled_replay_has_in_flight_is_no_other_replays_before_it_is_over(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """Two attempts of one number, rescued together after a crash, would stop every dispatcher."""
    endpoint_id = add_endpoint(db, URL)
    decisions.write("m_1")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = await claimed(store, endpoint_id)
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        first = applied(dsn, DELIVERED)
        (mine,) = await claimed_items(store, endpoint_id)
        with Replays.connect(dsn) as operator:
            operator.cancel(first, "test")
        second = applied(dsn, DELIVERED)
        assert await claimed_items(store, endpoint_id) == []
        db.execute(EXPIRE_ITEMS)
        assert len(await store.rescue_replays(16)) == 1
        assert await store.settle_replays([judged(mine, Outcome.DELIVERED)], repeated=False) == []
        (theirs,) = await claimed_items(store, endpoint_id)
        assert (numbers(mine), numbers(theirs)) == ([(1, 2)], [(1, 3)])
        await store.settle_replays([judged(theirs, Outcome.DELIVERED)], repeated=False)
        assert await claimed_items(store, endpoint_id) == []
        assert progress(dsn, second)["state"] == "applied"

    asyncio.run(stored(dsn, work))


def test_dead_letter_that_is_wanted_no_more_holds_no_lane(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """A lane that stays stopped for it would, after the next change, be freed by nothing."""
    endpoint_id = add_endpoint(db, URL, types=[BLOCK, RELEASE])
    decisions.write_rows([decisions.row("m_1", type_) for type_ in (BLOCK, RELEASE)])

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = await claimed(store, endpoint_id)
        await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
        await asyncio.to_thread(retype, dsn, RELEASE)
        await asyncio.to_thread(retype, dsn, RELEASE, "merchant.flag")
        (lane,) = await claimed(store, endpoint_id)
        assert numbers(lane) == [(2, 1)]
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        applied(dsn, DEAD)
        (item,) = await claimed_items(store, endpoint_id)
        assert numbers(item) == [(1, 2)]
        await store.settle_replays([judged(item, Outcome.DELIVERED)], repeated=False)
        assert lanes(db)["m_1"] == (2, 2, 0, LaneState.IDLE, None)
        assert db.execute(DEAD_LETTERS).fetchall() == [(1, "redelivered")]

    asyncio.run(stored(dsn, work))


@pytest.mark.parametrize("gone", [False, True])
def test_dead_letter_that_is_still_wanted_or_stored_no_more_holds_its_lane(
    dsn: str, db: psycopg.Connection, decisions: Decisions, *, gone: bool
) -> None:
    endpoint_id = add_endpoint(db, URL, types=[BLOCK])
    decisions.write_rows([decisions.row("m_1", type_) for type_ in (RELEASE, BLOCK, BLOCK)])

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = await claimed(store, endpoint_id)
        await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
        if gone:
            db.execute("DELETE FROM holdfast.entry WHERE sequence = 2")
        await asyncio.to_thread(retype, dsn, BLOCK, "merchant.flag")
        assert await claimed(store, endpoint_id) == []
        found = lanes(db)["m_1"]
        assert (found.delivered, found.last, found.state) == (1, 3, LaneState.STOPPED)
        with DeadLetters.connect(dsn) as dead:
            (row,) = dead.newest(Filter(), limit=2)
            dead.dismiss([row["id"]], "test", skip=True)
        (lane,) = await claimed(store, endpoint_id)
        assert numbers(lane) == [(3, 1)]

    asyncio.run(stored(dsn, work))


def test_lane_whose_head_is_stored_no_more_counts_its_next_entry_from_the_start(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    """As when days were dropped while its endpoint was disabled: what was tried was another."""
    endpoint_id = add_endpoint(db, URL, types=[BLOCK])
    decisions.write("m_1", "m_2")

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        for _ in range(2):
            make_due(db)
            failed = [judged(lane, Outcome.FAILED) for lane in await claimed(store, endpoint_id)]
            assert [each.move for each in failed] == [Move.RETRY] * 2
            await store.settle(failed, repeated=False)
        db.execute("DELETE FROM holdfast.entry")
        decisions.write("m_1")
        await store.route(16)
        make_due(db)
        # One goes on with an entry that was never handed out, the other one becomes idle first.
        (lane,) = await claimed(store, endpoint_id)
        decisions.write("m_2")
        await store.route(16)
        (other,) = await claimed(store, endpoint_id)
        for each in (lane, other):
            assert (numbers(each), each.tried_seconds) == ([(2, 1)], 0)
            await store.settle([judged(each, Outcome.FAILED)], repeated=False)
        tried = "SELECT tried_since_us > %s FROM holdfast.lane"
        assert db.execute(tried, [0]).fetchall() == [(True,), (True,)]
        make_due(db)
        for each in await claimed(store, endpoint_id):
            assert numbers(each) == [(2, 2)]
            assert each.tried_seconds < PATIENCE_SECONDS

    asyncio.run(stored(dsn, work))


def test_action_that_was_sent_again_after_its_reissue_was_planned_is_not_repeated(
    dsn: str, db: psycopg.Connection, decisions: Decisions
) -> None:
    endpoint_id = add_endpoint(db, URL)
    row = decisions.row("m_1")
    decisions.write_rows([row])
    key = Key.of(row["key"])

    async def work(store: PostgresStore) -> None:
        await store.route(16)
        (lane,) = await claimed(store, endpoint_id)
        await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
        with Reissues.connect(dsn) as operator:
            id_ = operator.plan([operator.preview(key)], "test", needs_approval=False)
            assert len(operator.left(id_)) == 1
            applied(dsn, DEAD)
            with pytest.raises(CommandError, match="sent again under its own key by replay"):
                operator.left(id_)
            assert await claimed_items(store, endpoint_id) == []
            with pytest.raises(CommandError, match="still to be delivered"):
                operator.left(id_)
            (lane,) = await claimed(store, endpoint_id)
            await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
            with pytest.raises(CommandError, match="the action would happen twice"):
                operator.left(id_)

    asyncio.run(stored(dsn, work))
