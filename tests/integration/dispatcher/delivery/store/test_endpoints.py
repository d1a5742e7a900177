"""Endpoints that are added and changed while decisions are routed."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast.dispatcher.delivery.rules.values import ClaimRequest, Routed
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.delivery import DELIVERED, applied, stored
from tests.support.dispatch.dispatching import SECRET, add_endpoint
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

CLAIMED = """
    UPDATE holdfast.lane
    SET token = gen_random_uuid(), claimed_sequence = last_sequence,
        lease_until = now() + interval '1 minute'
"""
WAITS = """
    SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE NOT granted AND datname = current_database()
"""


def change(dsn: str, *types: str, state: str = "active", **other: Any) -> None:
    """Pause, change the types, go on."""
    with Endpoints.connect(dsn) as store:
        store.set_endpoint_state("payouts", "paused", "test")
        store.set_endpoint("payouts", lambda row: {**row, "types": [*types], **other}, "test")
        store.set_endpoint_state("payouts", state, "test")


def alternate(decisions: Decisions, subject: str, pairs: int) -> None:
    """Odd sequences block, even ones release."""
    for _ in range(pairs):
        decisions.write(subject)
        decisions.write(subject, type_=RELEASE)


class Orders(Decisions):
    """A second stream, which decides about the same subjects under keys of its own."""

    def row(self, subject: str, type_: str = BLOCK, **other: Any) -> dict[str, Any]:
        """The next decision of a subject."""
        return super().row(subject, type_, key=["orders", uuid4().hex], **other)


@pytest.fixture
def orders(dsn: str) -> Iterator[Decisions]:
    """The second stream."""
    with Orders(dsn, "orders") as stream:
        yield stream


HAND = "SELECT key FROM holdfast.entry WHERE batch_no = %s"


def test_endpoint_of_a_stream_gets_no_other(world: World, orders: Decisions) -> None:
    """In order, whatever the other streams write between, and with what people write for it."""
    world.add_endpoint(streams=["orders"])
    world.write("m_1", "m_2")
    orders.write("m_1", "m_1")
    world.write("m_1")
    written = orders.write("m_1")
    report = world.drain()
    assert world.receiver.sequences("m_1") == [2, 3, 5]
    assert world.receiver.sequences("m_2") == []
    assert "gaps" not in report.counts
    ((key,),) = world.db.execute(HAND, [written.batch_no]).fetchall()
    world.holdfast("reissue", Key(key).text, "--reason", "test", "--yes", code=ExitCode.OK)
    world.drain()
    assert world.receiver.sequences("m_1") == [2, 3, 5, 6]


@pytest.mark.rest
def test_streams_of_an_endpoint_change_from_now_on(world: World, orders: Decisions) -> None:
    world.add_endpoint(streams=["test"])
    world.write("m_1")
    orders.write("m_1", "m_2")
    world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([1], [])
    change(world.dsn, streams=["orders"])
    orders.write("m_1", "m_2")
    world.write("m_1", "m_2")
    world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([1, 3], [2])
    change(world.dsn, streams=[])
    world.write("m_1", "m_2")
    world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([1, 3, 5], [2, 4])


@pytest.mark.rest
def test_backfill_and_check_keep_to_the_streams(world: World, orders: Decisions) -> None:
    world.write("m_1", "m_2")
    orders.write("m_1")
    world.add_endpoint(name="other")
    world.drain()
    secret = f"env:{SECRET}"
    options = ("--url", "http://127.0.0.1:9/", "--secret-ref", secret, "--stream", "orders")
    options += ("--allow-cidr", "127.0.0.0/8", "--from-beginning", "--reason", "test")
    world.holdfast("endpoint", "add", "payouts", *options, code=ExitCode.OK)
    assert world.lanes(2).keys() == {"m_1"}
    assert world.lanes(2)["m_1"][:2] == (1, 2)
    assert _unreached(world.dsn) == 0


OLDER = "INSERT INTO holdfast.dispatcher_instance (id, host, pid, version) VALUES (%s, 'h', 7, '1')"


def test_streams_wait_for_dispatchers_that_know_them(world: World) -> None:
    world.add_endpoint(state="paused")
    world.db.execute(OLDER, [uuid4()])
    change = ("endpoint", "set", "payouts", "--stream", "orders", "--reason", "test")
    done = world.holdfast(*change, code=ExitCode.FAILED)
    assert "h pid 7 runs an older version" in done.stderr
    world.db.execute("UPDATE holdfast.dispatcher_instance SET heartbeat_at = 'yesterday'")
    world.holdfast(*change, code=ExitCode.OK)


def test_endpoint_works_before_the_schema_has_streams(world: World) -> None:
    """As while processes are replaced before the database is upgraded."""
    world.db.execute("ALTER TABLE holdfast.endpoint DROP COLUMN streams")
    world.add_endpoint(order_policy="skip")
    world.write("m_1", "m_1")
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 2]
    assert _json(world.dsn, "endpoint", "show", "payouts", code=ExitCode.OK)["streams"] == []
    assert _unreached(world.dsn) == 0
    world.holdfast("endpoint", "pause", "payouts", "--reason", "test", code=ExitCode.OK)
    change = ("endpoint", "set", "payouts", "--reason", "test")
    world.holdfast(*change, "--rate", "5", code=ExitCode.OK)
    done = world.holdfast(*change, "--stream", "orders", code=ExitCode.FAILED)
    assert "holdfast db upgrade" in done.stderr


@pytest.mark.rest
def test_active_endpoint_keeps_its_types(dsn: str, db: psycopg.Connection) -> None:
    add_endpoint(db, "http://127.0.0.1:9/", types=[BLOCK])
    with Endpoints.connect(dsn) as store, pytest.raises(CommandError, match="pause payouts"):
        store.set_endpoint("payouts", lambda row: {**row, "types": []}, "test")
    assert db.execute("SELECT types FROM holdfast.endpoint").fetchone() == ([BLOCK],)


@pytest.mark.rest
@pytest.mark.parametrize("wider", [[], [BLOCK, RELEASE]])
def test_more_types_count_from_now_on(world: World, wider: list[str]) -> None:
    world.add_endpoint(types=[BLOCK])
    alternate(world.decisions, "m_1", 2)
    world.write("m_2", "m_2", type_=RELEASE)
    world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([1, 3], [])
    world.write("m_3", "m_2", type_=RELEASE)
    change(world.dsn, *wider)
    world.drain()
    # What was not routed before the change is judged by the new types.
    assert (world.receiver.sequences("m_3"), world.receiver.sequences("m_2")) == ([1], [3])
    alternate(world.decisions, "m_1", 1)
    alternate(world.decisions, "m_2", 1)
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 3, 5, 6]
    assert world.receiver.sequences("m_2") == [3, 4, 5]


@pytest.mark.rest
def test_still_wanted_is_not_lost_or_repeated(world: World) -> None:
    world.add_endpoint(world.receiver.url, types=[BLOCK], schedule_seconds=[0, 86_400])
    world.receiver.script = lambda _seen: answer(500)
    world.write("m_1", type_=RELEASE)
    alternate(world.decisions, "m_1", 2)
    world.drain()
    assert world.receiver.sequences("m_1") == [2, 2]
    change(world.dsn)
    world.receiver.script = lambda _seen: answer(200)
    world.db.execute("UPDATE holdfast.lane SET due_at = now() WHERE due_at IS NOT NULL")
    world.drain()
    # The first release was never wanted; the head goes on where it was.
    assert world.receiver.sequences("m_1") == [2, 2, 2, 3, 4, 5]
    assert [row.number for row in world.attempts()] == [1, 2, 3, 1, 1, 1]


@pytest.mark.rest
def test_unwanted_head_leaves_its_attempts_behind(world: World) -> None:
    world.add_endpoint(world.receiver.url, schedule_seconds=[0, 86_400])
    world.receiver.script = lambda _seen: answer(500)
    alternate(world.decisions, "m_1", 2)
    world.drain()
    change(world.dsn, RELEASE)
    world.receiver.script = lambda _seen: answer(200)
    world.db.execute("UPDATE holdfast.lane SET due_at = now() WHERE due_at IS NOT NULL")
    world.drain()
    assert world.receiver.sequences("m_1") == [1, 1, 2, 4]
    assert [(row.sequence, row.number) for row in world.attempts()][2:] == [(2, 1), (4, 1)]
    assert world.lanes()["m_1"].delivered == 4


@pytest.mark.rest
def test_dropped_entries_that_were_never_wanted_stop_no_lane(world: World) -> None:
    world.add_endpoint(types=[BLOCK])
    alternate(world.decisions, "m_1", 2)
    world.write("m_2", type_=RELEASE)
    world.drain()
    world.db.execute("DELETE FROM holdfast.entry WHERE type = %s", [RELEASE])
    change(world.dsn)
    world.write("m_1", "m_2")
    report = world.drain()
    assert (world.receiver.sequences("m_1"), world.receiver.sequences("m_2")) == ([1, 3, 5], [2])
    assert "gaps" not in report.counts


@pytest.mark.rest
def test_endpoint_from_the_beginning_starts_at_the_retention_limit(world: World) -> None:
    alternate(world.decisions, "m_1", 3)
    world.db.execute("UPDATE holdfast.batch SET routed_at = now()")
    world.db.execute("DELETE FROM holdfast.entry WHERE sequence < 4")
    world.add_endpoint()
    with Endpoints.connect(world.dsn) as store:
        assert store.backfill("payouts") == 1
    report = world.drain()
    assert world.receiver.sequences("m_1") == [4, 5, 6]
    assert "gaps" not in report.counts


@pytest.mark.rest
def test_claim_that_ends_while_the_types_change_keeps_them(world: World) -> None:
    """It began before the endpoint was paused, so neither sees what the other has done."""
    world.add_endpoint("http://127.0.0.1:9/", types=[BLOCK])
    alternate(world.decisions, "m_1", 1)
    asyncio.run(stored(world.dsn, _route))
    with Endpoints.connect(world.dsn) as store, ThreadPoolExecutor() as threads:
        store.set_endpoint_state("payouts", "paused", "test")
        with psycopg.connect(world.dsn) as claim:
            claim.execute(CLAIMED)
            changed = threads.submit(
                store.set_endpoint, "payouts", lambda row: {**row, "types": []}, "test"
            )
            eventually(lambda: world.db.execute(WAITS).fetchone() == (1,))
            assert not changed.done()
        with pytest.raises(CommandError, match="of 1 subject are still in flight"):
            changed.result()
    assert world.db.execute("SELECT types FROM holdfast.endpoint").fetchone() == ([BLOCK],)


async def _route(store: PostgresStore) -> None:
    await store.route(16)


STALL = """
    UPDATE holdfast.endpoint_pace
    SET stalled_since = now() - interval '1 minute', stalled_until = now() - interval '2 minutes'"""
STANDS = "SELECT paused, stalled_us, stalled_until FROM holdfast.endpoint_pace"


@pytest.mark.rest
def test_endpoint_is_paused_and_resumed_with_a_negative_stall(world: World) -> None:
    world.add_endpoint("http://127.0.0.1:1/")
    world.db.execute(STALL.encode())
    world.holdfast("endpoint", "pause", "payouts", "--reason", "tests", code=0)
    assert world.db.execute(STANDS).fetchall() == [(True, 0, None)]
    world.db.execute("""
        UPDATE holdfast.endpoint_pace
        SET held_until = now() + interval '1 minute', stalled_since = now() + interval '2 minutes'
    """)
    world.holdfast("endpoint", "resume", "payouts", "--reason", "tests", code=0)
    query = "SELECT stalled_until >= stalled_since FROM holdfast.endpoint_pace"
    assert world.db.execute(query).fetchall() == [(True,)]


HOURS = """
    UPDATE holdfast.endpoint_pace
    SET breaker_until = breaker_until + interval '10 hours',
        breaker_since = breaker_since + interval '10 hours',
        held_until = held_until + interval '10 hours',
        stalled_since = stalled_since + interval '10 hours',
        stalled_until = stalled_until + interval '10 hours'"""
OPENED = """
    UPDATE holdfast.endpoint_pace
    SET breaker = 'open', breaker_until = now() + interval '10 hours'"""
LONGEST = """
    SELECT coalesce(breaker_until <= clock_timestamp() + interval '6 minutes', true),
           coalesce(held_until <= clock_timestamp() + interval '24 hours', true)
    FROM holdfast.endpoint_pace"""
OVER = """
    UPDATE holdfast.endpoint_pace
    SET breaker_until = breaker_until - interval '6 minutes',
        held_until = held_until - interval '24 hours'"""


@pytest.mark.rest
@pytest.mark.parametrize("status", [500, 429])
def test_opening_and_hold_are_as_long_as_the_longest_at_most(world: World, status: int) -> None:
    """The clock went back ten hours; then the longest opening, or hold, goes by."""
    world.add_endpoint(world.receiver.url, breaker_threshold=int(status == 500))
    world.write("m_1")
    world.receiver.script = lambda _: answer(status, retry_after="86400")
    world.drain()
    world.db.execute(HOURS.encode())
    world.drain()
    assert world.db.execute(LONGEST).fetchall() == [(True, True)]
    world.receiver.script = lambda _: answer(200)
    world.db.execute(OVER.encode())
    world.make_due()
    assert world.drain().counts["delivered"] == 1


@pytest.mark.rest
def test_replay_continues_after_the_longest_opening(world: World) -> None:
    world.add_endpoint()
    world.write("m_1")
    world.drain()
    world.db.execute(OPENED.encode())
    applied(world.dsn, DELIVERED)
    world.drain()
    assert world.db.execute(LONGEST).fetchall() == [(True, True)]
    world.db.execute(OVER.encode())
    assert world.drain().counts["delivered"] == 1


AHEAD = """
    UPDATE holdfast.endpoint
    SET starts_at = starts_at + interval '1 hour', created_at = created_at + interval '1 hour'"""
ROUTED = "UPDATE holdfast.batch SET routed_at = now()"


@pytest.fixture
def behind(db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver) -> Decisions:
    """An endpoint for decisions from its start on, and a clock an hour behind that start."""
    decisions.write("old")
    db.execute(ROUTED)
    add_endpoint(db, receiver.url, starts_at=_now(db))
    db.execute(AHEAD)
    return decisions


@pytest.mark.rest
def test_endpoint_gets_decisions_before_its_start_clock(world: World, behind: Decisions) -> None:
    behind.write("m_1", "m_2")
    world.drain()
    assert {seen.subject for seen in world.receiver.seen} == {"m_1", "m_2"}
    behind.write("old")
    world.drain()
    assert world.lanes()["old"][:2] == (2, 2)
    assert len(world.receiver.seen) == 3


@pytest.mark.rest
def test_check_finds_what_no_lane_reached_behind_clock(world: World, behind: Decisions) -> None:
    behind.write("m_1", "m_2")
    world.db.execute(ROUTED)
    assert _unreached(world.dsn) == 2
    with Endpoints.connect(world.dsn) as store:
        assert (store.backfill("payouts"), store.backfill("payouts")) == (2, 0)
    assert _unreached(world.dsn) == 0
    world.drain()
    assert {seen.subject for seen in world.receiver.seen} == {"m_1", "m_2"}


@pytest.mark.rest
@pytest.mark.usefixtures("behind")
def test_status_says_that_the_clock_is_behind_what_is_stored(dsn: str) -> None:
    status = _json(dsn, "status", code=ExitCode.DEGRADED)
    assert [each["kind"] for each in status["needs"] if each["kind"] == "clock_behind"]


def _unreached(dsn: str) -> int:
    # The endpoint was added by hand, so that the trail does not know it.
    violated: dict[str, int] = _json(dsn, "check", code=ExitCode.FAILED)["violated"]
    return violated.get("entry_unreached", 0)


def _now(db: psycopg.Connection) -> Any:
    (at,) = db.execute("SELECT clock_timestamp()").fetchone() or ()
    return at


def _json(dsn: str, *arguments: str, code: ExitCode) -> Any:
    return holdfast(*arguments, "--json", dsn=dsn, code=code).json


SETTINGS: dict[str, Any] = {
    "name": "payouts",
    "url": "https://payouts.example/",
    "types": [],
    "secret_refs": ["env:SECRET"],
    "allow_cidrs": [],
    "connect_timeout_ms": 1000,
    "total_timeout_ms": 2000,
    "concurrency": 8,
    "schedule_seconds": [5],
    "order_policy": "stop",
}
GATE = 4711
HOLD_ROUTING = f"""
    CREATE FUNCTION holdfast.hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM set_config('lock_timeout', '0', true);
        PERFORM pg_advisory_xact_lock({GATE});
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold BEFORE UPDATE ON holdfast.batch
        FOR EACH ROW EXECUTE FUNCTION holdfast.hold();
"""
HOLD_SINK = f"""
    CREATE FUNCTION holdfast.hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock({GATE});
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold BEFORE INSERT ON holdfast.batch
        FOR EACH ROW WHEN (NEW.stream = 'test') EXECUTE FUNCTION holdfast.hold();
"""

ADVISORY_WAITS = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND objid <> %s
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def is_waiting(db: psycopg.Connection, work: Future[Any], other_than: int = 0) -> bool:
    assert not work.done(), work.result()
    return db.execute(ADVISORY_WAITS, [other_than]).fetchone() == (1,)


def route(dsn: str) -> Routed:
    routed: list[Routed] = []

    async def work(store: PostgresStore) -> None:
        routed.append(await store.route(16))

    asyncio.run(stored(dsn, work))
    return routed[0]


def claimed(dsn: str) -> list[int]:
    sequences: list[int] = []

    async def work(store: PostgresStore) -> None:
        claim = await store.claim(ClaimRequest({1: 10}, uuid4(), 30, 8), 0)
        sequences.extend(entry.sequence for lane in claim.lanes for entry in lane.entries)

    asyncio.run(stored(dsn, work))
    return sequences


def test_routing_waits_for_and_sees_new_endpoint(world: World, threads: ThreadPoolExecutor) -> None:
    with psycopg.connect(world.dsn, row_factory=dict_row) as adding, adding.transaction():
        Endpoints(adding).add_endpoint(SETTINGS, from_beginning=False, reason="test")
        world.write("m_1")
        routing = threads.submit(route, world.dsn)
        eventually(lambda: is_waiting(world.db, routing))
    assert routing.result() == Routed(batches=1, lanes=1)
    assert claimed(world.dsn) == [1]


@pytest.mark.parametrize(("from_beginning", "expected"), [(False, [2]), (True, [1, 2])])
def test_added_endpoint_waits_for_routing_and_starts_after_it(
    world: World, threads: ThreadPoolExecutor, from_beginning: bool, expected: list[int]
) -> None:
    world.db.execute(HOLD_ROUTING)
    written = world.write("m_1")

    def add() -> Any:
        with Endpoints.connect(world.dsn) as store:
            return store.add_endpoint(SETTINGS, from_beginning=from_beginning, reason="test")

    with psycopg.connect(world.dsn) as gate:
        gate.execute("SELECT pg_advisory_xact_lock(%s)", [GATE])
        routing = threads.submit(route, world.dsn)
        eventually(lambda: is_waiting(world.db, routing))
        adding = threads.submit(add)
        eventually(lambda: is_waiting(world.db, adding, other_than=GATE))
        assert world.db.execute("SELECT count(*) FROM holdfast.endpoint").fetchone() == (0,)
    assert routing.result() == Routed(batches=1, lanes=0)
    starts_at = adding.result()["starts_at"]
    assert starts_at is None if from_beginning else starts_at > written.written_at
    world.write("m_1")
    assert route(world.dsn) == Routed(batches=1, lanes=1)
    assert claimed(world.dsn) == expected


def test_later_commit_is_for_an_added_endpoint(world: World, threads: ThreadPoolExecutor) -> None:
    world.write("m_1")
    world.db.execute(HOLD_SINK)
    with psycopg.connect(world.dsn) as gate:
        gate.execute("SELECT pg_advisory_xact_lock(%s)", [GATE])
        writing = threads.submit(world.decisions.write, "m_1", "m_2")
        eventually(lambda: is_waiting(world.db, writing))
        # A later number is taken, and committed, before the earlier one.
        with Decisions(world.dsn, "free") as other:
            other.write("m_3")
        with Endpoints.connect(world.dsn) as store:
            store.add_endpoint(SETTINGS, from_beginning=False, reason="test")
    assert writing.result().batch_no == 2
    route(world.dsn)
    assert {subject: row[:2] for subject, row in world.lanes().items()} == {
        "m_1": (1, 2),
        "m_2": (0, 1),
    }


def test_backfill_adds_what_was_routed_before_an_older_batch(world: World) -> None:
    older = world.write("m_1")
    world.write("m_1")
    with psycopg.connect(world.dsn) as other:
        other.execute("SELECT FROM holdfast.batch WHERE batch_no = %s FOR UPDATE", [older.batch_no])
        assert route(world.dsn) == Routed(batches=1, lanes=0)
    with Endpoints.connect(world.dsn) as store:
        store.add_endpoint(SETTINGS, from_beginning=True, reason="test")
        world.db.execute("DELETE FROM holdfast.lane")
        route(world.dsn)
        assert world.lanes()["m_1"][:2] == (0, 1)
        assert (store.backfill("payouts"), store.backfill("payouts")) == (1, 0)
    assert claimed(world.dsn) == [1, 2]


def test_endpoint_added_without_lanes_says_how_to_make_them(world: World) -> None:
    world.write("m_1")
    world.db.execute("REVOKE INSERT ON holdfast.lane FROM holdfast_operator")
    with (
        Endpoints.connect(world.dsn) as store,
        pytest.raises(
            CommandError, match=r"was added, but.*Nothing is lost: run `holdfast endpoint"
        ),
    ):
        store.add_endpoint(SETTINGS, from_beginning=True, reason="test")
    world.db.execute("GRANT INSERT ON holdfast.lane TO holdfast_operator")
    with Endpoints.connect(world.dsn) as store:
        assert store.backfill("payouts") == 1
    assert world.lanes()["m_1"][:2] == (0, 1)
