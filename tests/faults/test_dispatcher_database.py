"""The database goes away, falls silent or answers too late while requests are under way.

Real: the commands in their own processes, Postgres, a proxy on its socket, the receiver. Asserted:
the invariants, the rows of lanes and attempts, the log.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.delivery import attempts, lanes
from tests.support.dispatch.webhooks import FirstOf, Gate, answer
from tests.support.servers.fault_proxy import FaultProxy, half_open, honest, lose_answer
from tests.support.world import SHORT, World

pytestmark = [pytest.mark.rest, pytest.mark.faults]

COPY = b"COPY holdfast.attempt"
"""What a settlement says before its COMMIT, and no other transaction does."""

COMMIT = b"COMMIT\x00"

REFUSE_BEATS = b"""
    CREATE SEQUENCE refused;
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        PERFORM nextval('public.refused');
        RAISE 'no sign of life gets through' USING ERRCODE = 'cannot_connect_now';
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON holdfast.dispatcher_instance
        FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def proxy(world: World) -> Iterator[FaultProxy]:
    with FaultProxy.before_postgres(world.dsn) as proxy:
        yield proxy


def _gated(world: World, *subjects: str) -> Gate:
    """Let the answers to these decisions wait for the gate."""
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.endpoint(total_timeout_ms=20_000)
    world.decisions.write(*subjects)
    return gate


def test_results_are_settled_if_the_database_returns_in_the_lease(
    world: World, proxy: FaultProxy
) -> None:
    gate = _gated(world, "m_1", "m_2")
    with world.dispatch("log", "--drain", dsn=proxy.dsn_of(world.dsn)) as running:
        running.until(lambda: len(world.receiver.seen) == 2)
        proxy.refuse()
        gate.open()
        running.says("store.away")
        proxy.heal()
        assert running.ends() == ExitCode.OK, running.text()
        assert len(running.lines("store.back")) == len(running.lines("store.away")), running.text()
    assert [row.outcome for row in attempts(world.db)] == ["delivered", "delivered"]
    world.heal()
    assert len(world.receiver.seen) == 2


def test_results_are_dropped_if_the_database_outage_outlasts_the_lease(
    world: World, proxy: FaultProxy
) -> None:
    world.endpoint()
    world.decisions.write("m_1")
    dsn = proxy.dsn_of(world.dsn)
    with world.dispatch("log", *SHORT, dsn=dsn, failpoints="D10=stop") as running:
        running.stands_still()
        proxy.refuse()
        running.go_on()
        running.says("result.dropped")
        proxy.heal()
        assert running.ends() == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["unknown", "delivered"]
    assert world.receiver.sequences("m_1") == [1, 1]
    world.heal()


def test_results_are_settled_after_silent_database_connections(
    world: World, proxy: FaultProxy
) -> None:
    """Half-open: the other side takes every byte and says nothing, until keepalives give up."""
    gate = _gated(world, "m_1", "m_2")
    with world.dispatch("log", "--drain", dsn=proxy.dsn_of(world.dsn)) as running:
        running.until(lambda: len(world.receiver.seen) == 2)
        proxy.bend(half_open)
        gate.open()
        # A settlement is on its way into the dark.
        running.until(lambda: proxy.lossy)
        proxy.heal()
        assert running.ends() == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["delivered", "delivered"]
    world.heal()
    assert len(world.receiver.seen) == 2


def test_unanswered_transaction_is_abandoned_and_repeated(world: World, proxy: FaultProxy) -> None:
    """The open lines stay half-open until all is settled over new ones, which work."""
    gate = _gated(world, "m_1", "m_2")
    launcher = (
        "tests.support.dispatch.bent_dispatch",
        *("--set", "holdfast.dispatcher.delivery.store.session.TRANSACTION_SECONDS=1.0"),
        # Who waits for a line is not the first to say that the database is away: the driver takes
        # some seconds more, in which it asks the server to end the statement.
        *("--set", "holdfast.dispatcher.delivery.store.session.POOL_SECONDS=30.0"),
    )
    dsn = proxy.dsn_of(world.dsn)
    with world.dispatch("log", "--drain", dsn=dsn, launcher=launcher) as running:
        running.until(lambda: len(world.receiver.seen) == 2)
        proxy.bend(half_open)
        proxy.script = lambda _number: honest
        gate.open()
        running.until(lambda: len(attempts(world.db)) == 2)
        assert "no answer within 1 s" in running.text()
        # The idle lines of its pool are dead as well, and each is found out when it is used.
        proxy.heal()
        assert running.ends() == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["delivered", "delivered"]
    world.heal()
    assert len(world.receiver.seen) == 2


@pytest.mark.parametrize("status", [200, 503])
def test_settlement_whose_commit_was_not_answered_is_stored_once(
    world: World, proxy: FaultProxy, status: int
) -> None:
    """Postgres commits, the line breaks before the dispatcher hears of it, and it asks again."""
    world.endpoint(schedule_seconds=[3600])
    world.receiver.script = lambda _seen: answer(status)
    world.decisions.write("m_1", "m_2", "m_2")
    proxy.bend(lose_answer(COMMIT, proxy.struck, after=COPY))
    with world.dispatch("log", *SHORT, dsn=proxy.dsn_of(world.dsn)) as running:
        assert running.ends() == ExitCode.OK, running.text()
    assert proxy.struck.is_set()
    assert running.lines("store.away"), running.text()
    assert running.lines("lease.lost") == [], running.text()
    world.receiver.script = lambda _seen: answer(200)
    assert len(world.receiver.seen) == (3 if status == 200 else 2)
    world.heal()
    assert world.unknown() == 0


def test_no_resend_within_the_lease_without_heartbeats(world: World) -> None:
    gate = _gated(world, "m_1")
    launcher = (
        "tests.support.dispatch.bent_dispatch",
        "--set",
        "holdfast.dispatcher.delivery.service.BEAT_SECONDS=0.1",
    )
    with (
        world.dispatch("a", "--stop-seconds", "5", launcher=launcher) as first,
        world.dispatch("b", "--stop-seconds", "5", launcher=launcher) as second,
    ):
        for each in (first, second):
            each.says("dispatcher.started")
        first.until(lambda: world.receiver.seen)
        world.db.execute(REFUSE_BEATS)
        first.until(lambda: world.value("SELECT last_value FROM refused") >= 20)
        assert len(world.receiver.seen) == 1
        gate.open()
        first.until(lambda: attempts(world.db))
        assert lanes(world.db)["m_1"].state is LaneState.IDLE
        for each in (first, second):
            assert each.lines("store.away"), each.text()
    world.db.execute("DROP TRIGGER refuse ON holdfast.dispatcher_instance")
    world.heal()
    assert world.unknown() == 0
    assert len(world.receiver.seen) == 1


def test_claiming_settling_routing_and_operators_never_block(world: World) -> None:
    """Everything that locks rows at once: what deadlocks is repeated, and nothing fails."""
    for name in ("payouts", "ledger"):
        world.endpoint(name=name, total_timeout_ms=10_000, schedule_seconds=[0] * 60)
    world.receiver.script = FirstOf(lambda seen: seen.sequence % 5 == 0, answer(503), answer(200))
    subjects = [f"m_{n}" for n in range(10)]
    done = threading.Event()

    def operate(name: str) -> int:
        rounds = 0
        with Endpoints.connect(world.dsn) as store:
            while not done.is_set():
                store.set_endpoint_state(name, "paused", "hammer")
                store.backfill(name)
                store.set_endpoint_state(name, "active", "hammer")
                store.endpoints()
                rounds += 1
        return rounds

    with (
        world.dispatch("a", "--claim-lanes", "4") as first,
        world.dispatch("b", "--claim-lanes", "4") as second,
        ThreadPoolExecutor() as threads,
    ):
        first.says("dispatcher.started")
        second.says("dispatcher.started")
        operators = [threads.submit(operate, name) for name in world.names]
        try:
            for _ in range(12):
                world.decisions.write(*subjects * 2)
        finally:
            done.set()
        assert all(operator.result() > 3 for operator in operators)
        for each in (first, second):
            each.until(
                lambda: {lane.state for lane in lanes(world.db).values()} == {LaneState.IDLE}
            )
            each.terminate()
            assert each.ends() == ExitCode.OK, each.text()
            assert each.lines("loop.crashed") == [], each.text()
    world.heal()
    assert world.receiver.overlaps == 0


@contextmanager
def _snapshot(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield reader


def test_session_that_holds_an_old_snapshot_changes_nothing(world: World) -> None:
    world.endpoint()
    subjects = [f"m_{n}" for n in range(10)]
    world.decisions.write(*subjects * 3)
    waiting = "SELECT count(*) FROM holdfast.batch WHERE routed_at IS NULL"
    with _snapshot(world.dsn) as reader:
        assert reader.execute(waiting).fetchone() == (1,)
        world.heal()
        world.decisions.write(*subjects * 3)
        world.heal()
        assert reader.execute(waiting).fetchone() == (1,)
    assert len(world.receiver.seen) == 60
