"""The table of a lane's moves, and the picture of it that people read."""

import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from holdfast.dispatcher.delivery.rules.lifecycle import (
    TRANSITIONS,
    IllegalMoveError,
    Move,
    after,
    state_of,
    stops,
)
from holdfast.dispatcher.shared.states import LaneState
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
