"""What a line to a receiver can do to a request, and what receivers lose.

Real: dispatchers in this process, Postgres, a proxy on the receiver's socket, the payouts service
as a process. Asserted: the invariants, the recorded outcomes, the holds. On both engines:
HOLDFAST_TEST_ENGINES=httpx,asyncio.
"""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from holdfast.dispatcher.outbound.transport.engines import EngineName
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.transaction.driver_path import InDriver
from tests.support.dispatch.delivery import attempts
from tests.support.dispatch.dispatching import drain
from tests.support.dispatch.invariants import check_applied_once
from tests.support.dispatch.payouts import Payouts, empty_database, payouts
from tests.support.dispatch.sender import NOON, WINDOW, hold
from tests.support.dispatch.webhooks import answer
from tests.support.servers.fault_proxy import (
    Fault,
    FaultProxy,
    Way,
    close_when_reused,
    corrupt,
    delay,
    half_open,
    mute,
    throttle,
    truncate,
)
from tests.support.world import ENGINES, World

pytestmark = [pytest.mark.rest, pytest.mark.faults, pytest.mark.parametrize("engine", ENGINES)]

SUBJECTS = ["m_1", "m_2", "m_3"]
LONG = 2000
"""Bytes of an answer that can be cut in the middle."""


@pytest.fixture
def proxy(world: World) -> Iterator[FaultProxy]:
    with FaultProxy.before_port(world.receiver.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def service(server_dsn: str) -> Iterator[Payouts]:
    with empty_database(server_dsn) as dsn, payouts(dsn) as running:
        yield running


def _url(proxy: FaultProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}/payouts"


FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "slow": (delay(0.02, 0.05), {"delivered"}),
    "thin": (throttle(50_000), {"delivered"}),
    "late": (delay(2.0), {"unknown"}),
    "half open": (half_open, {"unknown"}),
    "requests lost": (mute(Way.UP), {"unknown"}),
    "answers lost": (mute(Way.DOWN), {"unknown"}),
    "request cut, FIN": (truncate(Way.UP, 300), {"unknown"}),
    "request cut, RST": (truncate(Way.UP, 300, reset=True), {"unknown"}),
    "no answer, FIN": (truncate(Way.DOWN, 0), {"unknown"}),
    "no answer, RST": (truncate(Way.DOWN, 0, reset=True), {"unknown"}),
    "status cut": (truncate(Way.DOWN, 5), {"unknown"}),
    "body cut, FIN": (truncate(Way.DOWN, 500), {"delivered"}),
    "body cut, RST": (truncate(Way.DOWN, 500, reset=True), {"delivered"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_broken_connection_repeats_only_the_unknown(
    world: World, proxy: FaultProxy, engine: EngineName, name: str
) -> None:
    """Also that a status line decides, whatever becomes of the body behind it."""
    fault, outcomes = FAULTS[name]
    proxy.bend(fault)
    world.receiver.script = lambda _seen: answer(200, b"x" * LONG)
    world.endpoint(_url(proxy), schedule_seconds=[3600])
    world.decisions.write(*SUBJECTS)
    drain(world.dsn, engine=engine)
    assert {row.outcome for row in attempts(world.db)} == outcomes
    proxy.heal()
    world.heal(engine=engine)


def test_receiver_refusing_connections_gets_everything_later(
    world: World, proxy: FaultProxy, engine: EngineName
) -> None:
    world.endpoint(_url(proxy), schedule_seconds=[3600])
    world.decisions.write(*SUBJECTS * 2)
    proxy.refuse()
    drain(world.dsn, engine=engine)
    assert [row.outcome for row in attempts(world.db)] == ["failed"] * len(SUBJECTS)
    assert world.receiver.seen == []
    proxy.heal()
    world.heal(engine=engine)
    assert len(world.receiver.seen) == 2 * len(SUBJECTS)


def test_garbled_answer_counts_as_no_answer(
    world: World, proxy: FaultProxy, engine: EngineName
) -> None:
    """One bit of each answer is turned over, in its status line as likely as anywhere."""
    proxy.bend(corrupt(Way.DOWN))
    world.endpoint(_url(proxy), schedule_seconds=[0] * 3, order_policy="skip")
    world.decisions.write(*SUBJECTS * 8)
    drain(world.dsn, engine=engine)
    proxy.heal()
    world.heal(engine=engine)
    assert all(set(world.receiver.sequences(name)) == {*range(1, 9)} for name in SUBJECTS)


def test_connection_closed_at_reuse_costs_one_attempt(
    world: World, proxy: FaultProxy, engine: EngineName
) -> None:
    """The server's idle timeout meets the next request: the line looks open and is not."""
    proxy.bend(close_when_reused(proxy.struck))
    world.endpoint(_url(proxy), breaker_threshold=2)
    world.decisions.write("m_1", "m_1", "m_1")
    drain(world.dsn, engine=engine)
    assert proxy.struck.is_set()
    assert world.receiver.sequences("m_1") == [1, 2, 3]
    assert [row.outcome for row in attempts(world.db)].count("delivered") == 3
    assert world.unknown() <= 1
    assert world.value("SELECT breaker::text FROM holdfast.endpoint_pace") == "closed"
    world.check()


def test_dead_connection_of_one_endpoint_delays_no_other(
    world: World, proxy: FaultProxy, engine: EngineName
) -> None:
    proxy.bend(half_open)
    world.endpoint(_url(proxy), total_timeout_ms=30_000)
    world.endpoint(name="ledger", total_timeout_ms=30_000)
    world.decisions.write(*[f"m_{n}" for n in range(40)] * 5)
    options = ("--concurrency", "16", "--stop-seconds", "0.5")
    with world.dispatch("log", *options, engine=engine) as running:
        running.until(lambda: len(world.receiver.seen) == 200)
        assert {line["endpoint"] for line in running.lines("attempt")} == {"ledger"}
        proxy.heal()
        running.terminate()
        assert running.ends() == ExitCode.OK, running.text()
    world.heal(engine=engine)


def test_answer_that_is_lost_after_the_receiver_committed_leaves_one_hold(
    world: World, service: Payouts, engine: EngineName
) -> None:
    merchants = [f"{engine}_{n}" for n in range(4)]
    port = int(service.url.rpartition(":")[2])
    with FaultProxy.before_port(port) as proxy:
        proxy.bend(truncate(Way.DOWN, 0, reset=True))
        world.endpoint(
            f"http://127.0.0.1:{proxy.port}/webhooks",
            schedule_seconds=[3600],
            total_timeout_ms=10_000,
        )
        _order_holds(world, merchants)
        drain(world.dsn, engine=engine)
        assert {row.outcome for row in attempts(world.db)} == {"unknown"}
        proxy.heal()
        world.deliver(engine=engine)
    keys = "SELECT key FROM payouts.hold_history WHERE effect = 'applied' AND merchant_id ^@ %s"
    check_applied_once(world.db, [key for (key,) in service.rows(keys, engine)])
    log = """
        SELECT outcome, count(*) FROM payouts.delivery_log WHERE subject ^@ %s
        AND outcome <> 'in_progress' GROUP BY 1 ORDER BY 1"""
    assert service.rows(log, engine) == [("applied", 12), ("duplicate", 4)]


def _order_holds(world: World, merchants: list[str]) -> None:
    """Write three orders for each merchant, complete enough for the payouts service."""
    rows = []
    for window in (1, 2, 3):
        action = ("release", "block")[window % 2]
        end = NOON + window * WINDOW
        rows += [
            {
                "subject": merchant,
                "type": f"payout_hold.{action}",
                "key": ["payout-hold/v1", merchant, end.isoformat()],
                "occurred_at": end,
                "data": hold(merchant, action),
            }
            for merchant in merchants
        ]
    table = pa.Table.from_pylist(rows)
    world.decisions._writer.write(1, InDriver(prepare(BatchInput(table))))
