"""The table of a breaker's moves, and the picture of it that people read."""

import re

import pytest

from holdfast.dispatcher.delivery.rules.breaker import (
    JITTER,
    OPEN_SECONDS_MAX,
    TRANSITIONS,
    Event,
    IllegalEventError,
    after,
    open_seconds,
)
from holdfast.sink.contract.states import BreakerState
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "delivery.md"


def test_diagram_in_the_docs_is_the_table() -> None:
    section = PAGE.read_text().partition("### Breaker")[2].partition("\n## ")[0]
    drawn = re.findall(r"^ +(\w+) --> (\w+): (\w+)$", section, re.MULTILINE)
    table = [(state.value, to.value, event.value) for (state, event), to in TRANSITIONS.items()]
    assert sorted(drawn) == sorted(table)


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    assert set(TRANSITIONS.values()) == set(BreakerState)
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_open_breaker_lets_nothing_but_a_probe_out() -> None:
    assert {event for state, event in TRANSITIONS if state is BreakerState.OPEN} == {Event.PROBE}
    with pytest.raises(IllegalEventError, match="a breaker that is open cannot warm"):
        after(BreakerState.OPEN, Event.WARM)


def test_breaker_stays_open_twice_as_long_each_time_up_to_five_minutes() -> None:
    spans = [open_seconds(opening, draw=0.5) for opening in range(1, 9)]
    assert spans == [5, 10, 20, 40, 80, 160, 300, 300]
    assert open_seconds(10**6, draw=0.999) <= OPEN_SECONDS_MAX * (1 + JITTER)
    assert open_seconds(1, draw=0.0) == pytest.approx(5 * (1 - JITTER))
