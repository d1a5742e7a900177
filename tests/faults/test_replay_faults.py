"""Faults in the middle of a replay: a dispatcher is killed that carries it out, or an operator."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.dispatch.delivery import DELIVERED, applied, progress
from tests.support.dispatch.dispatching import drain
from tests.support.world import LEASE_SECONDS, SHORT, World

pytestmark = pytest.mark.rest

EXPIRE = """
    UPDATE holdfast.replay_item SET lease_until = now() - interval '1 second'
    WHERE token IS NOT NULL
"""
NEXT = """
    SELECT count(*) FROM (
        SELECT number,
               row_number() OVER (PARTITION BY subject_id, sequence ORDER BY number) AS place
        FROM holdfast.attempt
    ) a WHERE number <> place
"""
OPERATOR = """
from uuid import UUID
from holdfast.dispatcher.operators.replays.store import Replays
from tests.support.dispatch.delivery import DELIVERED
with Replays.connect({dsn!r}) as store:
    store.{call}
"""
PLAN = "plan(DELIVERED, reason='a test', id_=UUID(int=7))"


@pytest.mark.parametrize("point", ["D16=kill@2", "D9=kill@40", "D17=kill@2"])
def test_replay_continues_after_its_dispatcher_was_killed(world: World, point: str) -> None:
    world.endpoint()
    world.decisions.write(*(f"m_{number % 60}" for number in range(120)))
    drain(world.dsn)
    id_ = applied(world.dsn, DELIVERED, rate=500)
    with world.dispatch("killed", *SHORT, failpoints=point) as process:
        assert process.ends() == -signal.SIGKILL
    assert progress(world.dsn, id_)["state"] == "applying"
    world.db.execute(EXPIRE)
    drain(world.dsn, lease_seconds=LEASE_SECONDS)

    assert progress(world.dsn, id_) == {
        "state": "applied",
        "items": 120,
        "settled": 120,
        "sent": 120,
        "delivered": 120,
    }
    arrived = Counter(each.header("webhook-id") for each in world.receiver.seen)
    assert len(arrived) == 120
    assert min(arrived.values()) == 2
    assert sum(count - 2 for count in arrived.values()) <= world.unknown()
    assert world.value(NEXT) == 0


@pytest.mark.parametrize("point", ["O1", "O2"])
def test_plan_of_a_killed_process_can_be_made_again(world: World, point: str) -> None:
    world.endpoint()
    world.decisions.write("m_1", "m_2")
    drain(world.dsn)
    assert _operator(world, PLAN, point) == -signal.SIGKILL
    kept = "(SELECT count(*) FROM holdfast.replay), (SELECT count(*) FROM holdfast.replay_item)"
    written = f"SELECT ({kept}, (SELECT count(*) FROM holdfast.operator_action))::text"
    assert world.value(written) == "(0,0,0)"
    assert _operator(world, PLAN) == 0
    assert _operator(world, PLAN) == 0
    assert world.value(written) == "(1,2,1)"


def test_cancel_whose_process_is_killed_has_changed_nothing(world: World) -> None:
    world.endpoint()
    world.decisions.write("m_1")
    drain(world.dsn)
    id_ = applied(world.dsn, DELIVERED)
    assert _operator(world, f"cancel(UUID({str(id_)!r}), 'why')", "O3") == -signal.SIGKILL
    assert progress(world.dsn, id_) == {"state": "applying", "items": 1, "waiting": 1}
    drain(world.dsn)
    assert progress(world.dsn, id_)["state"] == "applied"


def _operator(world: World, call: str, point: str | None = None) -> int:
    """Run one call of the operator's store in a process of its own; returns how it ended."""
    program = OPERATOR.format(dsn=world.dsn, call=call)
    variables = {**os.environ, ENVIRONMENT: f"{point}=kill" if point else ""}
    return subprocess.run([sys.executable, "-c", program], env=variables, check=False).returncode
