"""When a tick is due."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark_app.command.values import timeout_milliseconds
from holdfast.spark_app.lifecycle.idle_clock import IdleClock

WAITS = {"isDataAvailable": False, "message": "Waiting for next trigger"}


def _query(**status: Any) -> Any:
    return SimpleNamespace(status=status)


class Watched:
    """An idle clock of ten seconds; `ticks` are the moments at which it wrote one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ticks: list[float] = []
        self.clock = IdleClock(10, lambda _: self.ticks.append(self.now), lambda: self.now)

    def at(self, now: float, rows: int = 0, **status: Any) -> "Watched":
        self.now = now
        self.clock.ask(_query(**WAITS | status))
        self.clock.observe(rows)
        return self


def test_a_silent_source_gets_one_tick_in_each_timeout() -> None:
    watched = Watched()
    for now in range(35):
        watched.at(now)
    assert watched.ticks == [10, 20, 30]


def test_rows_and_data_that_wait_begin_the_timeout_anew() -> None:
    watched = Watched().at(9, rows=1).at(18).at(18.5, isDataAvailable=True).at(28)
    assert watched.ticks == []
    assert watched.at(28.5).ticks == [28.5]


@pytest.mark.parametrize(
    "message", ["Initializing sources", "Getting offsets from FileStreamSource[file:/events]"]
)
def test_a_source_that_was_not_asked_or_does_not_answer_is_not_silent(message: str) -> None:
    watched = Watched().at(11, message=message).at(99, message=message)
    assert watched.ticks == []
    assert watched.at(100).ticks == [100]


def test_a_tick_that_cannot_be_written_is_an_error_and_not_forgotten() -> None:
    clock = IdleClock(0, lambda asked_ms: asked_ms / 0)
    clock.ask(_query(**WAITS))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            clock.observe(0)


def test_a_timeout_below_twice_the_trigger_interval_is_refused_in_words() -> None:
    assert timeout_milliseconds("0", 1000) == 0
    assert timeout_milliseconds("0s", 1000) == 0
    assert timeout_milliseconds("60s", 1000) == 60_000
    with pytest.raises(ValueError, match="less than two times the --trigger-interval"):
        timeout_milliseconds("1999ms", 1000)
