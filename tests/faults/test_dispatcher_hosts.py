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
from tests.support.dispatch.scene import ENGINES, LEASE_SECONDS, SHORT, FirstOf, Scene
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.waiting import eventually

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
    scene: Scene, jump: int
) -> None:
    clock = scene.folder / "clock"
    scene.endpoint(total_timeout_ms=20_000, schedule_seconds=[1] * 5)
    gate = Gate(answer(503))
    scene.receiver.script = FirstOf(lambda _seen: True, gate, answer(200))
    scene.decisions.write("m_1", "m_2")
    bends = ("--clock-file", str(clock), *BEATS_FAST)
    with scene.dispatch("log", "--stop-seconds", "5", launcher=(BENT, *bends)) as running:
        running.until(lambda: len(scene.receiver.seen) == 2)
        clock.write_text(str(jump))
        running.says("clock.skew")
        assert 0 < scene.value(LEFT) <= 25
        gate.open()
        running.until(lambda: len(attempts(scene.db)) == 2)
        assert all(0.5 < wait < 2 for (wait,) in scene.db.execute(WAITS.encode()))
        running.until(lambda: len(attempts(scene.db)) == 4)
        running.terminate()
        assert running.ends() == ExitCode.OK, running.text()
    assert abs(running.lines("clock.skew")[-1]["seconds"] - jump) <= 2
    assert [row.outcome for row in attempts(scene.db)] == ["failed"] * 2 + ["delivered"] * 2
    signed = int(scene.receiver.seen[-1].header("webhook-timestamp"))
    assert abs(signed - time.time()) < 60, "signatures carry the database's time"
    scene.heal()
    assert scene.unknown() == 0


@pytest.mark.parametrize("jump", [600, -600])
def test_clock_beyond_the_receivers_window_claims_nothing(scene: Scene, jump: int) -> None:
    clock = scene.folder / "clock"
    clock.write_text(str(jump))
    scene.endpoint()
    scene.decisions.write(*(f"m_{n}" for n in range(20)))
    launcher = (BENT, "--clock-file", str(clock), *BEATS_FAST)
    with scene.dispatch("drain", launcher=launcher) as draining:
        assert draining.ends() == ExitCode.FAILED, draining.text()
    with scene.dispatch("log", "--stop-seconds", "5", launcher=launcher) as running:
        running.until(lambda: len(running.lines("clock.skew")) > 10)
        assert running.lines("clock.skew")[-1]["claims"] is False
        assert (scene.receiver.seen, attempts(scene.db)) == ([], [])
        clock.write_text("0")
        running.until(lambda: len(attempts(scene.db)) == 20)
    scene.heal()
    assert {row.outcome for row in attempts(scene.db)} == {"delivered"}


@pytest.mark.parametrize("engine", ENGINES)
def test_unresolved_name_costs_only_retries(scene: Scene, engine: EngineName) -> None:
    ahead = AHEAD[engine].format("-")
    scene.endpoint(f"http://payouts.test:{scene.receiver.port}/payouts")
    scene.decisions.write("m_1", "m_1")
    bends = ("--resolve", f"payouts.test={ahead}-,hang,127.0.0.1")
    with scene.dispatch("log", *SHORT, engine=engine, launcher=(BENT, *bends)) as running:
        assert running.ends() == ExitCode.OK, running.text()
    lines = [(line["attempt"], line["outcome"]) for line in running.lines("attempt")]
    assert lines == [(1, "failed"), (2, "failed"), (3, "delivered"), (1, "delivered")]
    assert scene.receiver.sequences("m_1") == [1, 2]
    scene.check()


def test_silent_names_delay_no_other_endpoint_and_no_stop(scene: Scene) -> None:
    """More of them than any pool of threads has, and a name server that answers for the others."""
    slow = [f"slow-{n}" for n in range(20)]
    patient = {"connect_timeout_ms": 20_000, "total_timeout_ms": 20_000}
    for name in slow:
        add_endpoint(scene.db, f"http://silent-{name}.test/", name=name, **patient)
    scene.endpoint(f"http://payouts.test:{scene.receiver.port}/payouts")
    subjects = [f"m_{n}" for n in range(20)]
    scene.decisions.write(*subjects, *subjects)
    with name_server() as server:
        launcher = (BENT, "--name-server", server.address)
        with scene.dispatch("log", "--stop-seconds", "1", launcher=launcher) as running:
            running.until(lambda: len(scene.receiver.seen) == 40)
            assert all(server.asked[f"silent-{name}.test"] for name in slow)
            assert not running.lines("attempt")[-1]["endpoint"].startswith("slow")
            running.terminate()
            assert running.ends(30) == ExitCode.OK, running.text()


@pytest.mark.parametrize("engine", ENGINES)
def test_name_that_becomes_a_metadata_address_is_not_connected_to(
    scene: Scene, engine: EngineName
) -> None:
    scene.endpoint(f"http://payouts.test:{scene.receiver.port}/payouts")
    scene.decisions.write("m_1")
    bends = ("--resolve", "payouts.test=169.254.169.254")
    with scene.dispatch("log", *SHORT, engine=engine, launcher=(BENT, *bends)) as running:
        assert running.ends() == ExitCode.DEGRADED, running.text()
    assert [row.outcome for row in attempts(scene.db)] == ["refused"]
    assert scene.receiver.seen == []
    assert scene.db.execute("SELECT FROM holdfast.dead_letter").fetchall() == []
    assert lanes(scene.db)["m_1"].state is LaneState.DUE


@pytest.mark.parametrize("engine", ENGINES)
def test_resolver_that_is_wrong_for_a_moment_costs_no_decision_and_no_step(
    scene: Scene, engine: EngineName
) -> None:
    """A schedule of one step, which the first real failure then needs."""
    ahead = AHEAD[engine].format("169.254.169.254")
    where = f"http://payouts.test:{scene.receiver.port}/payouts"
    scene.endpoint(where, schedule_seconds=[0], concurrency=1)
    subjects = [f"m_{n}" for n in range(12)]
    scene.decisions.write(*subjects, *subjects)
    bends = ("--resolve", f"payouts.test={ahead}169.254.169.254,127.0.0.1")
    lease = ("--lease-seconds", str(LEASE_SECONDS))
    with scene.dispatch("log", *lease, engine=engine, launcher=(BENT, *bends)) as running:
        running.until(lambda: running.lines("breaker.opened"))
        (refused,) = [line for line in running.lines("attempt") if line["outcome"] == "refused"]
        subject = scene.db.execute(
            "SELECT name FROM holdfast.subject WHERE id = %s", [refused["subject"]]
        )
        ((name,),) = subject.fetchall()
        scene.receiver.script = FirstOf(lambda seen: seen.subject == name, answer(500), answer(200))
        eventually(lambda: all(lane.state is LaneState.IDLE for lane in lanes(scene.db).values()))
    assert scene.db.execute("SELECT FROM holdfast.dead_letter").fetchall() == []
    scene.check()
