"""The tables of a lane's and a breaker's moves, and the pictures of them that people read."""

import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from holdfast.dispatcher.delivery.rules import breaker, lifecycle
from holdfast.dispatcher.delivery.rules.breaker import JITTER, OPEN_SECONDS_MAX, Event, open_seconds
from holdfast.dispatcher.delivery.rules.lifecycle import Move, state_of
from holdfast.dispatcher.shared.states import LaneState
from holdfast.sink.contract.states import BreakerState
from tests.support.pages import ROOT

LANE = {
    (state.value, target.value, move.value)
    for (state, move), targets in lifecycle.TRANSITIONS.items()
    for target in targets
}
BREAKER = {(s.value, to.value, event.value) for (s, event), to in breaker.TRANSITIONS.items()}


@pytest.mark.parametrize(
    ("heading", "table", "states", "moves"),
    [("## Lanes", LANE, LaneState, Move), ("### Breaker", BREAKER, BreakerState, Event)],
)
def test_diagram_in_the_docs_is_the_table_and_uses_every_state_and_move(
    heading: str, table: set[tuple[str, str, str]], states: type[str], moves: type[str]
) -> None:
    page = (ROOT / "docs" / "delivery.md").read_text()
    section = page.partition(heading)[2].partition("\n## ")[0]
    drawn = re.findall(r"^ +(\w+) --> (\w+): (\w+)$", section, re.MULTILINE)
    assert sorted(drawn) == sorted(table)
    assert {to for _, to, _ in table} == {each.value for each in states}
    assert {move for _, _, move in table} == {each.value for each in moves}


def test_only_a_leased_lane_can_be_settled() -> None:
    by_hand = {Move.REDELIVER, Move.DISMISS, Move.GO_ON}
    settling = set(Move) - {Move.ROUTE, Move.CLAIM, Move.EMPTY, Move.GAP} - by_hand
    for state in set(LaneState) - {LaneState.LEASED}:
        for move in settling:
            with pytest.raises(lifecycle.IllegalMoveError):
                lifecycle.after(state, move)
    assert {move for move in settling if lifecycle.stops(move)} == {Move.BURY}


def test_state_follows_from_the_row() -> None:
    now = datetime.now(UTC)
    assert state_of(uuid4(), now, 1, 2) is LaneState.LEASED
    assert state_of(None, now, 1, 2) is LaneState.DUE
    assert state_of(None, None, 2, 2) is LaneState.IDLE
    assert state_of(None, None, 1, 2) is LaneState.STOPPED


def test_open_breaker_lets_nothing_but_a_probe_out() -> None:
    assert {event for state, _, event in BREAKER if state == BreakerState.OPEN} == {Event.PROBE}
    with pytest.raises(breaker.IllegalEventError, match="a breaker that is open cannot warm"):
        breaker.after(BreakerState.OPEN, Event.WARM)


def test_breaker_stays_open_twice_as_long_each_time_up_to_five_minutes() -> None:
    spans = [open_seconds(opening, draw=0.5) for opening in range(1, 9)]
    assert spans == [5, 10, 20, 40, 80, 160, 300, 300]
    assert open_seconds(10**6, draw=0.999) <= OPEN_SECONDS_MAX * (1 + JITTER)
    assert open_seconds(1, draw=0.0) == pytest.approx(5 * (1 - JITTER))
