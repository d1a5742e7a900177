"""Where an entry stands at an endpoint, as the entry's page says it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.dispatcher.cli.output import counted
from holdfast.dispatcher.operators.entries.rules import Stage, Standing, standing

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
DUE: dict[str, Any] = {
    "endpoint_state": "active",
    "breaker": "closed",
    "breaker_until": None,
    "held_until": None,
    "delivered_sequence": 2,
    "last_sequence": 5,
    "due_at": NOW,
    "lease_until": None,
    "head_sequence": 3,
    "dead_reason": None,
    "died_at": None,
    "delivered_at": None,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Standing(Stage.DUE, until=NOW)),
        ({"lease_until": NOW}, Standing(Stage.SENDING, until=NOW)),
        ({"due_at": None}, Standing(Stage.STOPPED)),
        ({"delivered_sequence": 3, "head_sequence": None}, Standing(Stage.PASSED)),
        (
            {"delivered_sequence": 3, "delivered_at": NOW},
            Standing(Stage.DELIVERED, until=NOW),
        ),
        ({"dead_reason": "rejected", "died_at": NOW}, Standing(Stage.DEAD, until=NOW)),
        ({"last_sequence": 2}, Standing(Stage.UNROUTED)),
        ({"last_sequence": None, "delivered_sequence": None}, Standing(Stage.UNROUTED)),
        (
            {"delivered_sequence": 0, "head_sequence": 1, "lease_until": NOW},
            Standing(Stage.BEHIND, behind=1),
        ),
        # Tried, and then the endpoint was changed to take its type no more.
        ({"delivered_sequence": 2, "head_sequence": None}, Standing(Stage.BEHIND)),
        (
            {"endpoint_state": "paused"},
            Standing(Stage.DUE, until=NOW, hold_reason="the endpoint is paused"),
        ),
        ({"breaker": "open"}, Standing(Stage.DUE, until=NOW, hold_reason="its breaker is open")),
        (
            {"held_until": NOW, "delivered_sequence": 0, "head_sequence": 1},
            Standing(Stage.BEHIND, behind=1, hold_reason="its receiver asked for time"),
        ),
    ],
)
def test_place_of_an_entry_follows_from_its_lane_attempts_and_dead_letter(
    change: dict[str, Any], expected: Standing
) -> None:
    assert standing(DUE | change, 3) == expected


@pytest.mark.parametrize(
    ("noun", "plural"),
    [("row", "rows"), ("entry", "entries"), ("batch", "batches"), ("diverged replay", "replays")],
)
def test_noun_is_in_the_plural_unless_there_is_one(noun: str, plural: str) -> None:
    assert counted(1, noun) == f"1 {noun}"
    for count in (0, 2, 11):
        said = counted(count, noun)
        assert said.startswith(f"{count} ")
        assert said.endswith(plural)
