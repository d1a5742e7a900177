"""The tables of a lane's and a breaker's moves, and the pictures of them that people read."""

import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from holdfast.dispatcher.delivery.rules.breaker import (
    JITTER,
    OPEN_SECONDS_MAX,
    Event,
    IllegalEventError,
    open_seconds,
)
from holdfast.dispatcher.delivery.rules.breaker import (
    TRANSITIONS as BREAKER_TRANSITIONS,
)
from holdfast.dispatcher.delivery.rules.breaker import (
    after as breaker_after,
)
from holdfast.dispatcher.delivery.rules.lifecycle import (
    TRANSITIONS,
    IllegalMoveError,
    Move,
    after,
    state_of,
    stops,
)
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import BreakerState
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "delivery.md"


def test_diagram_in_the_docs_is_the_table() -> None:
    section = PAGE.read_text().partition("## Lanes")[2].partition("\n## ")[0]
    drawn = re.findall(r"^ +(\w+) --> (\w+): (\w+)$", section, re.MULTILINE)
    table = [
        (state.value, target.value, move.value)
        for (state, move), targets in TRANSITIONS.items()
        for target in targets
    ]
    assert sorted(drawn) == sorted(table)


def test_every_state_can_be_reached_and_every_move_is_used() -> None:
    reached = {target for targets in TRANSITIONS.values() for target in targets}
    assert reached == set(LaneState)
    assert {move for _, move in TRANSITIONS} == set(Move)


def test_only_a_leased_lane_can_be_settled() -> None:
    by_hand = {Move.REDELIVER, Move.DISMISS, Move.GO_ON}
    settling = set(Move) - {Move.ROUTE, Move.CLAIM, Move.EMPTY, Move.GAP} - by_hand
    for state in set(LaneState) - {LaneState.LEASED}:
        for move in settling:
            with pytest.raises(IllegalMoveError):
                after(state, move)
    assert {move for move in settling if stops(move)} == {Move.BURY}


def test_state_follows_from_the_row() -> None:
    now = datetime.now(UTC)
    assert state_of(uuid4(), now, 1, 2) is LaneState.LEASED
    assert state_of(None, now, 1, 2) is LaneState.DUE
    assert state_of(None, None, 2, 2) is LaneState.IDLE
    assert state_of(None, None, 1, 2) is LaneState.STOPPED


def test_breaker_diagram_in_the_docs_is_the_table() -> None:
    section = PAGE.read_text().partition("### Breaker")[2].partition("\n## ")[0]
    drawn = re.findall(r"^ +(\w+) --> (\w+): (\w+)$", section, re.MULTILINE)
    table = [
        (state.value, to.value, event.value) for (state, event), to in BREAKER_TRANSITIONS.items()
    ]
    assert sorted(drawn) == sorted(table)


def test_every_state_can_be_reached_and_every_event_is_used() -> None:
    assert set(BREAKER_TRANSITIONS.values()) == set(BreakerState)
    assert {event for _, event in BREAKER_TRANSITIONS} == set(Event)


def test_open_breaker_lets_nothing_but_a_probe_out() -> None:
    assert {event for state, event in BREAKER_TRANSITIONS if state is BreakerState.OPEN} == {
        Event.PROBE
    }
    with pytest.raises(IllegalEventError, match="a breaker that is open cannot warm"):
        breaker_after(BreakerState.OPEN, Event.WARM)


def test_breaker_stays_open_twice_as_long_each_time_up_to_five_minutes() -> None:
    spans = [open_seconds(opening, draw=0.5) for opening in range(1, 9)]
    assert spans == [5, 10, 20, 40, 80, 160, 300, 300]
    assert open_seconds(10**6, draw=0.999) <= OPEN_SECONDS_MAX * (1 + JITTER)
    assert open_seconds(1, draw=0.0) == pytest.approx(5 * (1 - JITTER))
