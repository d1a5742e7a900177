"""Alive and ready, by a clock that the test moves."""

import asyncio

import pytest

from holdfast.dispatcher.delivery.health import ANSWER_SECONDS, Health
from holdfast.dispatcher.delivery.supervisor import Pulse, Supervisor
from holdfast.dispatcher.delivery.telemetry.log import Telemetry


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


def test_loop_that_stands_still_beyond_its_limit_is_named(clock: Clock, health: Health) -> None:
    health.turn("claim", 10)
    health.turn("route", 100)
    clock.now += 10
    assert health.not_live() == []
    clock.now += 1
    (fault,) = health.not_live()
    assert "'claim'" in fault
    assert "11 s" in fault
    health.turn("claim", 10)
    assert health.not_live() == []


def test_loop_that_has_ended_is_not_missed(clock: Clock, health: Health) -> None:
    health.turn("claim", 10)
    health.end("claim")
    clock.now += 1000
    assert health.not_live() == []


def test_ready_needs_endpoints_and_an_answer_of_the_database(clock: Clock, health: Health) -> None:
    assert len(health.not_ready()) == 2
    health.loaded()
    health.answered(None)
    assert health.not_ready() == []
    clock.now += ANSWER_SECONDS + 1
    assert health.not_ready() == ["the database has not answered for 21 s"]
    assert health.not_live() == []
    health.answered("the schema has revision 0001, this version needs 0014")
    assert health.not_ready() == ["the schema has revision 0001, this version needs 0014"]


def test_dispatcher_that_stops_is_not_ready_and_still_alive(health: Health) -> None:
    health.loaded()
    health.answered(None)
    health.stopping()
    assert health.not_ready() == ["the dispatcher is stopping"]
    assert health.not_live() == []


def test_step_that_never_ends_is_seen(clock: Clock, health: Health) -> None:
    async def run() -> None:
        supervisor = Supervisor(Telemetry(), health)
        begun = asyncio.Event()

        async def hang() -> bool:
            begun.set()
            await asyncio.Event().wait()
            return False

        task = asyncio.create_task(supervisor.loop("claim", hang, Pulse(1, 2), step_seconds=30))
        await begun.wait()
        clock.now += 31
        assert health.not_live() == []
        clock.now += 2
        assert len(health.not_live()) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert health.not_live() == []

    asyncio.run(run())
