"""Dispatchers that stand still for too long, meet each other, or are told to stop.

Real: the commands in their own processes, SIGSTOP, SIGCONT, SIGTERM, SIGKILL, Postgres, sockets.
Asserted: the invariants, the rows of lanes and attempts, the log, the exit codes.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import attempts, expire_leases, lanes
from tests.support.dispatch.dispatching import Process, drain
from tests.support.dispatch.webhooks import Behaviour, Seen, Wire, answer, response
from tests.support.world import World

pytestmark = [pytest.mark.rest, pytest.mark.faults]

MANY = 500


@pytest.mark.parametrize(
    ("point", "arrivals"), [("D2", [1, 2]), ("D8", [1, 1, 2]), ("D10", [1, 2, 1, 2])]
)
def test_dispatcher_stopped_beyond_its_lease_does_no_harm_when_it_wakes(
    world: World, point: str, arrivals: list[int]
) -> None:
    """It stands still at the point, another takes over, then it continues where it was."""
    world.endpoint()
    world.decisions.write("m_1", "m_1")
    with world.dispatch("first", failpoints=f"{point}=stop") as first:
        first.stands_still()
        report = drain(world.dsn)
        before = (lanes(world.db), attempts(world.db))
        first.go_on()
        assert first.ends() == ExitCode.OK, first.text()
        assert first.lines("lease.lost"), first.text()
    assert (lanes(world.db), attempts(world.db)) == before
    assert world.receiver.sequences("m_1") == arrivals
    assert report.counts == {"rescued": 2, "delivered": 2}
    world.check()


def test_two_dispatchers_never_send_one_lane_at_once(world: World) -> None:
    world.endpoint()
    for _ in range(5):
        world.decisions.write(*[f"m_{n}" for n in range(20)] * 2)
    options = ("--drain", "--claim-lanes", "3")
    with world.dispatch("a", *options) as first, world.dispatch("b", *options) as second:
        assert (first.ends(), second.ends()) == (0, 0), first.text() + second.text()
    assert world.receiver.overlaps == 0
    assert world.unknown() == 0
    world.check()


def test_concurrent_rescuers_book_each_expired_lease_once(world: World) -> None:
    world.endpoint(concurrency=MANY, connect_timeout_ms=10_000, total_timeout_ms=10_000)
    world.decisions.write(*[f"m_{n}" for n in range(MANY)])
    options = ("--drain", "--concurrency", str(MANY), "--claim-lanes", str(MANY))
    with world.dispatch("dying", *options, failpoints="D2=kill") as dying:
        assert dying.ends() == -signal.SIGKILL, dying.text()
    leased = sum(lane.state is LaneState.LEASED for lane in lanes(world.db).values())
    assert leased > MANY / 2
    # The rescuers find fresh work to claim in the same moment.
    world.decisions.write(*[f"m_{n}" for n in range(0, MANY, 2)])
    options = ("--drain", "--claim-lanes", "20")
    with world.dispatch("a", *options) as first, world.dispatch("b", *options) as second:
        for each in (first, second):
            each.says("dispatcher.started")
        expire_leases(world.db)
        assert (first.ends(), second.ends()) == (0, 0), first.text() + second.text()
    booked = [*first.lines("lease.expired"), *second.lines("lease.expired")]
    assert len(booked) == world.unknown() == leased
    assert len({(line["subject"], line["sequence"], line["attempt"]) for line in booked}) == leased
    world.check()


def test_first_signal_lets_five_hundred_requests_end(world: World) -> None:
    answered = asyncio.Event()

    async def behave(_seen: Seen, wire: Wire) -> None:
        await answered.wait()
        await wire.send(response(200))

    with _five_hundred(world, behave, "--stop-seconds", "30") as running:
        running.terminate()
        running.says("dispatcher.stopping")
        world.receiver._loop.call_soon_threadsafe(answered.set)
        assert running.ends() == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["delivered"] * MANY
    assert {lane.token for lane in lanes(world.db).values()} == {None}
    assert {lane.attempt for lane in lanes(world.db).values()} == {0}
    world.heal()
    assert world.unknown() == 0


def test_second_signal_records_five_hundred_requests_as_unknown(world: World) -> None:
    with _five_hundred(world, webhooks.silence, "--stop-seconds", "60") as running:
        running.terminate()
        running.says("dispatcher.stopping")
        running.terminate()
        assert running.ends(30) == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["unknown"] * MANY
    assert {lane.token for lane in lanes(world.db).values()} == {None}
    world.heal()


def test_stop_timeout_ends_a_process_whatever_its_receivers_do(world: World) -> None:
    with _five_hundred(world, webhooks.silence, "--stop-seconds", "0.5") as running:
        running.terminate()
        assert running.ends(30) == ExitCode.OK, running.text()
    assert [row.outcome for row in attempts(world.db)] == ["unknown"] * MANY
    world.heal()


def test_dispatcher_killed_in_grace_leaves_unknowns_to_be_resent(world: World) -> None:
    with _five_hundred(world, webhooks.silence, "--stop-seconds", "60") as running:
        running.terminate()
        running.says("dispatcher.stopping")
        running.send(signal.SIGKILL)
        assert running.ends() == -signal.SIGKILL
    assert attempts(world.db) == []
    world.heal()
    assert world.unknown() >= MANY


@contextmanager
def _five_hundred(world: World, behave: Behaviour, *options: str) -> Iterator[Process]:
    """Run a dispatcher with five hundred requests under way, while the block runs.

    Each of the first lanes has one more entry, which waits behind its head.
    """
    world.endpoint(concurrency=MANY, connect_timeout_ms=30_000, total_timeout_ms=60_000)
    subjects = [f"m_{n}" for n in range(MANY)]
    world.decisions.write(*subjects, *subjects[:50])
    world.receiver.script = lambda _seen: behave
    many = ("--concurrency", str(MANY), "--claim-lanes", str(MANY))
    with world.dispatch("log", *many, *options) as running:
        running.until(lambda: len(world.receiver.seen) == MANY)
        yield running
    world.receiver.script = lambda _seen: answer(200)
