"""The host of a dispatcher is wrong about the time, or about names.

Real: the command in its own process with its clock or its resolver bent (`bent_dispatch`),
Postgres, the receiver. Asserted: times as the database stored them, the log, the invariants. On
both engines: HOLDFAST_TEST_ENGINES=httpx,asyncio.
"""

import time

import pytest

from holdfast.dispatcher.outbound.transport.engines import EngineName
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.delivery import attempts, lanes
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.name_server import name_server
from tests.support.dispatch.webhooks import FirstOf, Gate, answer
from tests.support.waiting import eventually
from tests.support.world import ENGINES, LEASE_SECONDS, SHORT, World

pytestmark = [pytest.mark.rest, pytest.mark.faults]

BENT = "tests.support.dispatch.bent_dispatch"

AHEAD = {"httpx": "", "asyncio": "{},"}
"""asyncio resolves once before there is anything to send; a failure then is no attempt."""

LEFT = """
    SELECT extract(epoch FROM lease_until - clock_timestamp())::float
    FROM holdfast.lane WHERE token IS NOT NULL
"""
WAITS = """
    SELECT extract(epoch FROM retry_at - finished_at)::float
    FROM holdfast.attempt WHERE outcome = 'failed'
"""


BEATS_FAST = ("--set", "holdfast.dispatcher.delivery.service.BEAT_SECONDS=0.1")


@pytest.mark.parametrize("jump", [250, -250])
def test_clock_that_jumps_while_requests_run_moves_no_lease_and_no_retry(
    world: World, jump: int
) -> None:
    clock = world.tmp_path / "clock"
    world.endpoint(total_timeout_ms=20_000, schedule_seconds=[1] * 5)
    gate = Gate(answer(503))
    world.receiver.script = FirstOf(lambda _seen: True, gate, answer(200))
    world.decisions.write("m_1", "m_2")
    bends = ("--clock-file", str(clock), *BEATS_FAST)
    with world.dispatch("log", "--stop-seconds", "5", launcher=(BENT, *bends)) as running:
        running.until(lambda: len(world.receiver.seen) == 2)
        clock.write_text(str(jump))
        running.says("clock.skew")
        assert 0 < world.value(LEFT) <= 25
        gate.open()
        running.until(lambda: len(attempts(world.db)) == 2)
        assert all(0.5 < wait < 2 for (wait,) in world.db.execute(WAITS.encode()))
        running.until(lambda: len(attempts(world.db)) == 4)
        running.terminate()
        assert running.ends() == ExitCode.OK, running.text()
    assert abs(running.lines("clock.skew")[-1]["seconds"] - jump) <= 2
    assert [row.outcome for row in attempts(world.db)] == ["failed"] * 2 + ["delivered"] * 2
    signed = int(world.receiver.seen[-1].header("webhook-timestamp"))
    assert abs(signed - time.time()) < 60, "signatures carry the database's time"
    world.heal()
    assert world.unknown() == 0


@pytest.mark.parametrize("jump", [600, -600])
def test_clock_beyond_the_receivers_window_claims_nothing(world: World, jump: int) -> None:
    clock = world.tmp_path / "clock"
    clock.write_text(str(jump))
    world.endpoint()
    world.decisions.write(*(f"m_{n}" for n in range(20)))
    launcher = (BENT, "--clock-file", str(clock), *BEATS_FAST)
    with world.dispatch("drain", launcher=launcher) as draining:
        assert draining.ends() == ExitCode.FAILED, draining.text()
    with world.dispatch("log", "--stop-seconds", "5", launcher=launcher) as running:
        running.until(lambda: len(running.lines("clock.skew")) > 10)
        assert running.lines("clock.skew")[-1]["claims"] is False
        assert (world.receiver.seen, attempts(world.db)) == ([], [])
        clock.write_text("0")
        running.until(lambda: len(attempts(world.db)) == 20)
    world.heal()
    assert {row.outcome for row in attempts(world.db)} == {"delivered"}


@pytest.mark.parametrize("engine", ENGINES)
def test_unresolved_name_costs_only_retries(world: World, engine: EngineName) -> None:
    resolver = AHEAD[engine].format("-")
    world.endpoint(f"http://payouts.test:{world.receiver.port}/payouts")
    world.decisions.write("m_1", "m_1")
    bends = ("--resolve", f"payouts.test={resolver}-,hang,127.0.0.1")
    with world.dispatch("log", *SHORT, engine=engine, launcher=(BENT, *bends)) as running:
        assert running.ends() == ExitCode.OK, running.text()
    lines = [(line["attempt"], line["outcome"]) for line in running.lines("attempt")]
    assert lines == [(1, "failed"), (2, "failed"), (3, "delivered"), (1, "delivered")]
    assert world.receiver.sequences("m_1") == [1, 2]
    world.check()


def test_silent_names_delay_no_other_endpoint_and_no_stop(world: World) -> None:
    """More of them than any pool of threads has, and a name server that answers for the others."""
    slow = [f"slow-{n}" for n in range(20)]
    patient = {"connect_timeout_ms": 20_000, "total_timeout_ms": 20_000}
    for name in slow:
        add_endpoint(world.db, f"http://silent-{name}.test/", name=name, **patient)
    world.endpoint(f"http://payouts.test:{world.receiver.port}/payouts")
    subjects = [f"m_{n}" for n in range(20)]
    world.decisions.write(*subjects, *subjects)
    with name_server() as server:
        launcher = (BENT, "--name-server", server.address)
        with world.dispatch("log", "--stop-seconds", "1", launcher=launcher) as running:
            running.until(lambda: len(world.receiver.seen) == 40)
            running.until(lambda: running.lines("attempt"))
            assert all(server.asked[f"silent-{name}.test"] for name in slow)
            assert not running.lines("attempt")[-1]["endpoint"].startswith("slow")
            running.terminate()
            assert running.ends(30) == ExitCode.OK, running.text()


@pytest.mark.parametrize("engine", ENGINES)
def test_name_resolving_to_a_metadata_address_is_not_connected(
    world: World, engine: EngineName
) -> None:
    world.endpoint(f"http://payouts.test:{world.receiver.port}/payouts")
    world.decisions.write("m_1")
    bends = ("--resolve", "payouts.test=169.254.169.254")
    with world.dispatch("log", *SHORT, engine=engine, launcher=(BENT, *bends)) as running:
        assert running.ends() == ExitCode.DEGRADED, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["refused"]
    assert world.receiver.seen == []
    assert world.db.execute("SELECT FROM holdfast.dead_letter").fetchall() == []
    assert lanes(world.db)["m_1"].state is LaneState.DUE


@pytest.mark.parametrize("engine", ENGINES)
def test_brief_wrong_dns_answer_costs_no_decision_and_no_step(
    world: World, engine: EngineName
) -> None:
    """A schedule of one step, which the first real failure then needs."""
    resolver = AHEAD[engine].format("169.254.169.254")
    where = f"http://payouts.test:{world.receiver.port}/payouts"
    world.endpoint(where, schedule_seconds=[0], concurrency=1)
    subjects = [f"m_{n}" for n in range(12)]
    world.decisions.write(*subjects, *subjects)
    bends = ("--resolve", f"payouts.test={resolver}169.254.169.254,127.0.0.1")
    lease = ("--lease-seconds", str(LEASE_SECONDS))
    with world.dispatch("log", *lease, engine=engine, launcher=(BENT, *bends)) as running:
        running.until(lambda: running.lines("breaker.opened"))
        (refused,) = [line for line in running.lines("attempt") if line["outcome"] == "refused"]
        subject = world.db.execute(
            "SELECT name FROM holdfast.subject WHERE id = %s", [refused["subject"]]
        )
        ((name,),) = subject.fetchall()
        world.receiver.script = FirstOf(lambda seen: seen.subject == name, answer(500), answer(200))
        eventually(lambda: all(lane.state is LaneState.IDLE for lane in lanes(world.db).values()))
    assert world.db.execute("SELECT FROM holdfast.dead_letter").fetchall() == []
    world.check()
