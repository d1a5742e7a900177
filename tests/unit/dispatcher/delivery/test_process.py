"""A dispatcher's settings and clocks, and when it is alive and ready."""

import asyncio
import gc
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.dispatcher.delivery import database_clock
from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.dispatcher.delivery.gc_tuning import YOUNG_MAX, tuned_for_deliveries
from holdfast.dispatcher.delivery.health import ANSWER_SECONDS, Health
from holdfast.dispatcher.delivery.settings import Settings
from holdfast.dispatcher.delivery.supervisor import Pulse, Supervisor
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.sink.contract.wire import TOLERANCE_SECONDS


@pytest.mark.parametrize(
    "values",
    [
        {"concurrency": 0},
        {"concurrency": 5000},
        {"claim_lanes": -1},
        {"entries_per_lane": 0},
        {"lease_seconds": 1.0},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 601.0},
        {"stop_seconds": -1.0},
    ],
)
def test_senseless_setting_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Settings(dsn="", **values)


def test_representation_hides_the_dsn() -> None:
    assert "hunter2" not in repr(Settings(dsn="postgresql://u:hunter2@h/d"))


def test_interpreter_is_tuned_only_while_a_dispatcher_runs() -> None:
    before = gc.get_threshold()
    with suppress(KeyError), tuned_for_deliveries():
        within = gc.get_threshold(), gc.get_freeze_count()
        raise KeyError
    assert within[0] == (YOUNG_MAX, *before[1:])
    assert within[1] > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


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


NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed since noon on both clocks; the last one is now."""
    passed = [0.0]
    monkeypatch.setattr(database_clock, "seconds", lambda: passed[-1])
    monkeypatch.setattr(database_clock.time, "time", lambda: NOON.timestamp() + passed[-1])
    return passed


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_slow_heartbeat_moves_the_clock_into_its_duration_alone(elapsed: list[float]) -> None:
    clock = DatabaseClock()
    assert clock.moment() == NOON
    elapsed.append(0.002)
    clock.measured(after(0.001), 0.0)
    assert clock.moment() == after(0.002)
    elapsed.append(100.0)
    clock.measured(after(99.0), 40.0)
    assert clock.moment() == after(100.0), "the time lies within the call: nothing new"
    elapsed.append(200.0)
    clock.measured(after(230.0), 199.0)
    assert clock.moment() == after(230.0), "the database's clock was set forward"


@pytest.mark.parametrize("skew", [TOLERANCE_SECONDS, -TOLERANCE_SECONDS])
def test_clock_is_a_fault_beyond_what_receivers_accept(elapsed: list[float], skew: int) -> None:
    clock = DatabaseClock()
    clock.measured(after(-skew), elapsed[-1])
    assert clock.skew_seconds == skew
    assert clock.fault is None
    further = DatabaseClock()
    further.measured(after(-skew * 1.01), elapsed[-1])
    assert further.fault is not None
