"""The database's time, as heartbeats of any duration measure it."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.dispatcher.delivery import database_clock
from holdfast.dispatcher.delivery.database_clock import DatabaseClock
from holdfast.sink.contract.wire import TOLERANCE_SECONDS

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
