"""Dispatchers and operators beside each other, batches in any order, connections of any age.

Two dispatchers may have two batches of a subject in hand, and either may end first.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.replays import ReplayRequest
from holdfast.dispatcher.delivery.rules.values import ClaimRequest, Lane, Routed
from holdfast.dispatcher.delivery.store.messages import Plans, begin, statement
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.store.warm import _CLAIM
from holdfast.dispatcher.operators.dead_letters.store import DeadLetters, Filter
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.operators.reissue.store import Reissues
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import OrderPolicy, Outcome
from tests.integration.dispatcher.delivery.store.test_store import ENDPOINT, judged, wanted
from tests.support.dispatch.delivery import DEAD, DELIVERED, applied, progress, stored
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.refusal import raises_code
from tests.support.servers.fault_proxy import FaultProxy, Turns
from tests.support.statements import statements_of
from tests.support.world import World

URL = "http://127.0.0.1:1/"
DEAD_LETTERS = "SELECT sequence, resolution::text FROM holdfast.dead_letter"
PATIENCE_SECONDS = 60
EXPIRE_ITEMS = """
    UPDATE holdfast.replay_item SET lease_until = now() - interval '1 second'
    WHERE token IS NOT NULL
"""


async def claimed(store: PostgresStore, endpoint_id: int, entries: int = 8) -> list[Lane]:
    claim = await store.claim(ClaimRequest({endpoint_id: 100}, uuid4(), 30, entries), 0)
    return list(claim.lanes)


async def claimed_items(store: PostgresStore, endpoint_id: int) -> list[Lane]:
    turn = await store.claim_replays(ReplayRequest({endpoint_id: 8}, uuid4(), 30), 0)
    return list(turn.lanes)


def numbers(lane: Lane) -> list[tuple[int, int]]:
    return [(entry.sequence, entry.number) for entry in lane.entries]


def retype(dsn: str, *types: str) -> None:
    """Change the types of an endpoint that is paused for it."""
    with Endpoints.connect(dsn) as store:
        store.set_endpoint_state("payouts", "paused", "test")
        store.set_endpoint("payouts", lambda row: {**row, "types": [*types]}, "test")
        store.set_endpoint_state("payouts", "active", "test")


async def test_in_flight_entry_is_of_one_replay_only(world: World, store: PostgresStore) -> None:
    """Two attempts of one number, rescued together after a crash, would stop every dispatcher."""
    endpoint_id = await world.routed(store, "m_1")
    (lane,) = await claimed(store, endpoint_id)
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    first = applied(world.dsn, DELIVERED)
    (mine,) = await claimed_items(store, endpoint_id)
    with Replays.connect(world.dsn) as operator:
        operator.cancel(first, "test")
    second = applied(world.dsn, DELIVERED)
    assert await claimed_items(store, endpoint_id) == []
    world.db.execute(EXPIRE_ITEMS)
    assert len(await store.rescue_replays(16)) == 1
    assert await store.settle_replays([judged(mine, Outcome.DELIVERED)], repeated=False) == []
    (theirs,) = await claimed_items(store, endpoint_id)
    assert (numbers(mine), numbers(theirs)) == ([(1, 2)], [(1, 3)])
    await store.settle_replays([judged(theirs, Outcome.DELIVERED)], repeated=False)
    assert await claimed_items(store, endpoint_id) == []
    assert progress(world.dsn, second)["state"] == "applied"


async def test_cancelled_replay_is_not_taken(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1")
    (lane,) = await claimed(store, endpoint_id)
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    id_ = applied(world.dsn, DELIVERED)
    with Replays.connect(world.dsn) as operator:
        operator.cancel(id_, "test")
    assert await claimed_items(store, endpoint_id) == []


async def test_unwanted_dead_letter_holds_no_lane(world: World, store: PostgresStore) -> None:
    """A lane that stays stopped for it would, after the next change, be freed by nothing."""
    endpoint_id = world.add_endpoint(URL, types=[BLOCK, RELEASE])
    world.decisions.write_rows([world.decisions.row("m_1", type_) for type_ in (BLOCK, RELEASE)])
    await store.route(16)
    (lane,) = await claimed(store, endpoint_id)
    await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
    await asyncio.to_thread(retype, world.dsn, RELEASE)
    await asyncio.to_thread(retype, world.dsn, RELEASE, "merchant.flag")
    (lane,) = await claimed(store, endpoint_id)
    assert numbers(lane) == [(2, 1)]
    await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
    applied(world.dsn, DEAD)
    (item,) = await claimed_items(store, endpoint_id)
    assert numbers(item) == [(1, 2)]
    await store.settle_replays([judged(item, Outcome.DELIVERED)], repeated=False)
    assert world.lanes()["m_1"] == (2, 2, 0, LaneState.IDLE, None)
    assert world.db.execute(DEAD_LETTERS).fetchall() == [(1, "redelivered")]


async def test_replay_releases_no_lane_that_went_on(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", types=[BLOCK, RELEASE])
    (lane,) = await claimed(store, endpoint_id)
    await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
    id_ = applied(world.dsn, DEAD)
    retype(world.dsn, RELEASE)
    before = world.lanes()
    assert before["m_1"].state is LaneState.IDLE
    assert await claimed_items(store, endpoint_id) == []
    assert world.lanes() == before
    assert progress(world.dsn, id_)["needless"] == 1


async def test_dismissal_moves_no_lane_that_went_on(world: World, store: PostgresStore) -> None:
    endpoint_id = await world.routed(store, "m_1", "m_1", order_policy="skip")
    skips = replace(ENDPOINT, order_policy=OrderPolicy.SKIP)
    for outcome in (Outcome.REJECTED, Outcome.DELIVERED):
        (lane,) = await claimed(store, endpoint_id, entries=1)
        await store.settle([judged(lane, outcome, endpoint=skips)], repeated=False)
    before = world.lanes()
    assert before["m_1"].state is LaneState.IDLE
    with DeadLetters.connect(world.dsn) as dead:
        (row,) = dead.newest(Filter(), limit=2)
        dead.dismiss([row["id"]], "test", skip=True)
    assert world.lanes() == before


@pytest.mark.parametrize("gone", [False, True])
async def test_wanted_or_pruned_dead_letter_holds_its_lane(
    world: World, store: PostgresStore, *, gone: bool
) -> None:
    endpoint_id = world.add_endpoint(URL, types=[BLOCK])
    world.decisions.write_rows(
        [world.decisions.row("m_1", type_) for type_ in (RELEASE, BLOCK, BLOCK)]
    )
    await store.route(16)
    (lane,) = await claimed(store, endpoint_id)
    await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
    if gone:
        world.db.execute("DELETE FROM holdfast.entry WHERE sequence = 2")
    await asyncio.to_thread(retype, world.dsn, BLOCK, "merchant.flag")
    assert await claimed(store, endpoint_id) == []
    result = world.lanes()["m_1"]
    assert (result.delivered, result.last, result.state) == (1, 3, LaneState.STOPPED)
    with DeadLetters.connect(world.dsn) as dead:
        (row,) = dead.newest(Filter(), limit=2)
        dead.dismiss([row["id"]], "test", skip=True)
    (lane,) = await claimed(store, endpoint_id)
    assert numbers(lane) == [(3, 1)]


async def test_next_entry_after_a_lost_head_starts_its_count(
    world: World, store: PostgresStore
) -> None:
    """As when days were dropped while its endpoint was disabled: what was tried was another."""
    endpoint_id = await world.routed(store, "m_1", "m_2", types=[BLOCK])
    for _ in range(2):
        world.make_due()
        failed = [judged(lane, Outcome.FAILED) for lane in await claimed(store, endpoint_id)]
        assert [each.move for each in failed] == [Move.RETRY] * 2
        await store.settle(failed, repeated=False)
    world.db.execute("DELETE FROM holdfast.entry")
    world.write("m_1")
    await store.route(16)
    world.make_due()
    # One goes on with an entry that was never handed out, the other one becomes idle first.
    (lane,) = await claimed(store, endpoint_id)
    world.write("m_2")
    await store.route(16)
    (other,) = await claimed(store, endpoint_id)
    for each in (lane, other):
        assert (numbers(each), each.tried_seconds) == ([(2, 1)], 0)
        await store.settle([judged(each, Outcome.FAILED)], repeated=False)
    tried = "SELECT tried_since_us > %s FROM holdfast.lane"
    assert world.db.execute(tried, [0]).fetchall() == [(True,), (True,)]
    world.make_due()
    for each in await claimed(store, endpoint_id):
        assert numbers(each) == [(2, 2)]
        assert each.tried_seconds < PATIENCE_SECONDS


async def test_resent_action_is_not_reissued(world: World, store: PostgresStore) -> None:
    endpoint_id = world.add_endpoint(URL)
    row = world.decisions.row("m_1")
    world.decisions.write_rows([row])
    key = Key.of(row["key"])
    await store.route(16)
    (lane,) = await claimed(store, endpoint_id)
    await store.settle([judged(lane, Outcome.REJECTED)], repeated=False)
    with Reissues.connect(world.dsn) as operator:
        id_ = operator.plan([operator.preview(key)], "test", needs_approval=False)
        assert len(operator.left(id_)) == 1
        applied(world.dsn, DEAD)
        with raises_code("replay_in_progress"):
            operator.left(id_)
        assert await claimed_items(store, endpoint_id) == []
        with raises_code("delivery_pending"):
            operator.left(id_)
        (lane,) = await claimed(store, endpoint_id)
        await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        with raises_code("already_delivered"):
            operator.left(id_)


async def test_lane_begins_at_first_entry_in_any_order(world: World, store: PostgresStore) -> None:
    world.add_endpoint(URL)
    first = world.write("m_1")
    world.write("m_1", "m_1")
    with psycopg.connect(world.dsn) as other:
        other.execute("SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE", [first.batch_no])
        assert await store.route(16) == Routed(1, 1)
        assert world.lanes()["m_1"][:2] == (0, 3)
    assert await store.route(16) == Routed(1, 0)
    assert await store.route(16) == Routed(0, 0)
    assert world.lanes()["m_1"][:2] == (0, 3)


def test_batch_routed_late_raises_the_urgency_of_its_lane(world: World) -> None:
    """Two dispatchers may route two batches of a subject in any order."""
    world.add_endpoint("http://127.0.0.1:1/")
    world.write("m_1")
    world.write("m_1")
    world.db.execute("UPDATE holdfast.entry SET priority = 10 * sequence")
    world.db.execute("""
        UPDATE holdfast.batch SET routed_at = now()
        WHERE batch_no = (SELECT min(batch_no) FROM holdfast.batch)
    """)
    asyncio.run(stored(world.dsn, _route))
    world.db.execute("""
        UPDATE holdfast.batch SET routed_at = NULL
        WHERE batch_no = (SELECT min(batch_no) FROM holdfast.batch)
    """)
    asyncio.run(stored(world.dsn, _route))
    query = "SELECT priority, delivered_sequence, last_sequence FROM holdfast.lane"
    assert world.db.execute(query).fetchall() == [(10, 0, 2)]


async def test_batch_routed_after_delivery_is_no_change(world: World, store: PostgresStore) -> None:
    """Another dispatcher routes a later batch and delivers both before the first is through."""
    endpoint_id = world.add_endpoint(URL)
    first = world.write("m_1")
    world.write("m_1")
    with psycopg.connect(world.dsn) as other:
        other.execute("SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE", [first.batch_no])
        assert await store.route(16) == Routed(1, 1)
        (lane,) = (await store.claim(wanted(endpoint_id), 0)).lanes
        both = judged(lane, Outcome.DELIVERED, Outcome.DELIVERED)
        await store.settle([both], repeated=False)
    assert await store.route(16) == Routed(1, 0)
    assert await store.route(16) == Routed(0, 0)
    assert world.lanes()["m_1"] == (2, 2, 0, LaneState.IDLE, None)


async def _route(store: PostgresStore) -> None:
    await store.route(10)


NOT_WARM = {"claiming/lane_priorities", "routing/route_lock_shared"}
"""What is asked every second at most, and what may have to wait."""
ON_LANES = (
    "routing/lane_route_hold",
    "routing/lane_route",
    "claiming/lane_due",
    "claiming/lane_claim",
    "settling/lane_hold",
    "settling/lane_settle",
)
LANE_SCAN = re.compile(r"(?<!Subquery) Scan .*on lane(_key)?\b")
KEPT = """
    SELECT format('EXPLAIN EXECUTE %%I(%%s)', name, array_to_string(
               array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ', ')) AS explain
    FROM pg_prepared_statements WHERE starts_with(statement, %s)
"""


async def _prepared(connection: Connection) -> dict[str, int]:
    """How often each statement was planned for its parameters, by name."""
    statements = statements_of("holdfast.dispatcher.delivery.store")
    names = {text.decode(): name for name, text in statements.items()}
    cursor = await connection.execute(
        "SELECT statement, custom_plans FROM pg_prepared_statements", prepare=False
    )
    rows = {row["statement"]: row["custom_plans"] for row in await cursor.fetchall()}
    assert len(rows) == cursor.rowcount, "one statement, prepared for two kinds of parameters"
    # psycopg writes parameters in Postgres's way.
    first_lines = {text.split("\n", 1)[0]: name for text, name in names.items()}
    return {
        first_lines[text.split("\n", 1)[0]]: planned
        for text, planned in rows.items()
        if text.split("\n", 1)[0] in first_lines
    }


async def test_delivery_prepares_nothing_on_a_new_connection(world: World) -> None:
    endpoint_id = world.add_endpoint("http://127.0.0.1:1/")
    world.write("m_1", "m_2")
    store = PostgresStore(world.dsn, connections_max=1)
    await store.open()
    before = await store._sessions.transaction(_prepared)
    assert (await store.route(16)).lanes == 2
    lanes = (await store.claim(wanted(endpoint_id), 0)).lanes
    assert len(lanes) == 2
    await store.settle([judged(lane, Outcome.DELIVERED) for lane in lanes], repeated=False)
    world.write("m_3")
    done = await store.route_and_claim(wanted(endpoint_id), 0)
    assert done is not None
    assert len(done[1].lanes) == 1
    after = await store._sessions.transaction(_prepared)
    assert after.keys() - before.keys() == NOT_WARM
    kept = after.keys() & before.keys() - {"connection/session"}
    assert {name: after[name] - before[name] for name in kept} == dict.fromkeys(kept, 0), (
        "planned for each decision"
    )
    assert {*ON_LANES, "claiming/pace_take"} <= kept
    await store.close()


async def test_plan_kept_from_an_empty_table_never_walks_all_lanes(world: World) -> None:
    """Until somebody analyzes the table, this is the plan for a million of them."""
    world.add_endpoint("http://127.0.0.1:1/")
    for table in ("lane", "lane_key", "endpoint", "endpoint_pace"):
        world.db.execute(f"VACUUM (ANALYZE) holdfast.{table}".encode())
    store = PostgresStore(world.dsn, connections_max=1)
    await store.open()
    plans = await store._sessions.transaction(_kept_plans, begins=True)
    await store.close()
    for name, plan in plans.items():
        scans = [at for at, line in enumerate(plan) if LANE_SCAN.search(line)]
        assert scans, name
        for at in scans:
            assert re.search("(Index|TID) Cond", plan[at + 1]), "\n".join(plan)


async def _kept_plans(connection: Connection) -> dict[str, list[str]]:
    """Return the plans by which a connection runs what it does with lanes, by statement."""
    await begin(connection, *_CLAIM[:1], plans=Plans.GENERIC)
    plans = {}
    for name in ON_LANES:
        first_line = statement(name).decode().split("\n", 1)[0]
        cursor = await connection.execute(KEPT, [first_line], prepare=False)
        (row,) = await cursor.fetchall()
        cursor = await connection.execute(row["explain"].encode(), prepare=False)
        plans[name] = [line["QUERY PLAN"] for line in await cursor.fetchall()]
    return plans


LIMITS = {
    "breaker": """
        UPDATE holdfast.endpoint_pace
        SET breaker = 'open', breaker_since = now(), breaker_until = now() + interval '1 hour'
        WHERE endpoint_id = %s
    """,
    "hold": """
        UPDATE holdfast.endpoint_pace
        SET held_until = now() + interval '1 hour', held_by = 'answered 429'
        WHERE endpoint_id = %s
    """,
    "rate": "UPDATE holdfast.endpoint SET rate_per_second = 115 WHERE id = %s",
}


async def free_claimed(store: PostgresStore, *endpoints: int) -> Sequence[Lane]:
    claim = await store.claim(ClaimRequest(dict.fromkeys(endpoints, 100), uuid4(), 30, 8), 0)
    return claim.lanes


@pytest.mark.parametrize(("limit", "later"), [("breaker", 0), ("hold", 0), ("rate", 5)])
async def test_limit_that_came_since_the_last_claim_holds(
    world: World, store: PostgresStore, limit: str, later: int
) -> None:
    free, limited = world.add_endpoint(URL, name="free"), world.add_endpoint(URL, name="limited")
    world.write("m_0")
    await store.route(16)
    before = await free_claimed(store, free, limited)
    await store.settle([judged(lane, Outcome.DELIVERED) for lane in before], repeated=False)
    world.write(*(f"m_{n}" for n in range(1, 9)))
    await store.route(16)
    world.db.execute(LIMITS[limit].encode(), [limited])
    for leased in ({free: 8}, {limited: later} if later else {}):
        result = await free_claimed(store, free, limited)
        assert Counter(lane.endpoint_id for lane in result) == leased
    rows = world.db.execute(
        "SELECT endpoint_id, count(token) FROM holdfast.lane GROUP BY 1"
    ).fetchall()
    assert dict(rows) == {free: 8, limited: later}


def test_decision_waits_for_three_round_trips_before_it_is_sent(world: World) -> None:
    """Two for routing and one for its claim, or two for both: each is a message and its answer."""
    endpoint_id = world.add_endpoint(URL)
    turns = Turns()

    async def work(store: PostgresStore) -> None:
        for _ in range(2):  # what a connection does for the first time takes longer
            world.write("m_1")
            await store.route(16)
            for lane in await free_claimed(store, endpoint_id):
                await store.settle([judged(lane, Outcome.DELIVERED)], repeated=False)
        world.write("m_1")
        proxy.bend(turns)
        await store.route(16)
        routed = turns.count
        assert len(await free_claimed(store, endpoint_id)) == 1
        assert (routed, turns.count - routed) == (2, 1)
        world.write("m_2")
        before = turns.count
        wanted = ClaimRequest({endpoint_id: 100}, uuid4(), 30, 8)
        assert await store.route_and_claim(wanted, 0) is not None
        assert turns.count - before == 2

    with FaultProxy.before_postgres(world.dsn) as proxy:
        asyncio.run(stored(proxy.dsn_of(world.dsn), work))
    assert world.lanes()["m_1"].delivered == 2
