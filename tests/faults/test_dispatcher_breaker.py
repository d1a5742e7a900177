"""A receiver fails everything for a while, then heals.

Real: the command in its own process, Postgres, the receiver. The minutes that a breaker stays open
are moved into the past in the database. Asserted: what arrived and when, the log, the invariants.
"""

import pytest

from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.delivery import lanes
from tests.support.dispatch.dispatching import Process
from tests.support.dispatch.sender import BLOCK, RELEASE
from tests.support.dispatch.webhooks import Seen, answer
from tests.support.world import World

pytestmark = [pytest.mark.rest, pytest.mark.faults]

OVER = """
    UPDATE holdfast.endpoint_pace SET breaker_until = now() - interval '1 second'
    WHERE breaker = 'open'
"""
STATE = """
    SELECT breaker::text FROM holdfast.endpoint_pace
    JOIN holdfast.endpoint ON id = endpoint_id WHERE name = 'payouts'
"""
SUBJECTS = [f"m_{n}" for n in range(60)]
THRESHOLD = 5


def test_healed_receiver_gets_a_probe_then_a_ramp_then_everything(world: World) -> None:
    world.receiver.script = lambda seen: answer(200 if seen.target.endswith("ledger") else 503)
    world.endpoint(
        types=[BLOCK], breaker_threshold=THRESHOLD, slow_start_seconds=2, schedule_seconds=[0] * 10
    )
    world.endpoint(name="ledger", types=[RELEASE])
    world.decisions.write(*SUBJECTS * 2)
    with world.dispatch("log", "--concurrency", "4") as running:
        running.says("breaker.opened")
        _claims_go_on(world, running)
        tried = len(_arrived(world))
        assert tried < len(SUBJECTS) / 2

        world.db.execute(OVER.encode())
        running.until(lambda: len(running.lines("breaker.opened")) == 2)
        _claims_go_on(world, running)
        assert len(_arrived(world)) == tried + 1

        world.receiver.script = lambda _seen: answer(200)
        world.db.execute(OVER.encode())
        running.says("breaker.recovering")
        running.until(lambda: {lane.state for lane in lanes(world.db).values()} == {LaneState.IDLE})
        # The slow start ends with the first claim or result after its time.
        running.until(lambda: world.decisions.write("m_0") and world.value(STATE) == "closed")
        running.terminate()
        assert running.ends() == ExitCode.OK, running.text()
    # Nobody was given up, and nothing came at once: it took most of the slow start.
    healed = [seen.at for seen in _arrived(world)[tried + 1 :]][: len(SUBJECTS)]
    assert healed[-1] - healed[0] > 0.5
    assert world.value("SELECT count(*) FROM holdfast.dead_letter") == 0
    world.heal()


def _arrived(world: World) -> list[Seen]:
    return [seen for seen in world.receiver.seen if seen.target.endswith("payouts")]


def _claims_go_on(world: World, running: Process) -> None:
    """Return when decisions for another endpoint, made now, were claimed and delivered twice."""
    for _ in range(2):
        before = len(world.receiver.seen) - len(_arrived(world))
        world.decisions.write("another", type_=RELEASE)
        running.until(lambda: len(world.receiver.seen) - len(_arrived(world)) > before)  # noqa: B023 - called at once
