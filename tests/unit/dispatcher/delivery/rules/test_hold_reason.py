"""Why nothing is sent to an endpoint, or for a replay, for now: in words, with the way out."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.dispatcher.delivery.rules.hold_reason import why_held_up
from holdfast.dispatcher.operators.replays.rules import obstacles

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
ROW: dict[str, Any] = {
    "name": "payouts",
    "state": "active",
    "state_reason": None,
    "breaker": "closed",
    "breaker_until": None,
    "breaker_reason": None,
    "held_until": None,
    "held_by": None,
}
OPEN = {"breaker": "open", "breaker_until": NOW, "breaker_reason": "HTTP 500"}
HELD = {"held_until": NOW, "held_by": "answered 429 with Retry-After"}
RESUME = "until `holdfast endpoint resume payouts --reason TEXT`"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "paused"}, f"it is paused {RESUME}"),
        ({"state": "paused", "state_reason": "their\n deploy"} | OPEN, f"(their deploy) {RESUME}"),
        ({"state": "disabled"}, f"it is disabled {RESUME}"),
        (
            {"state": "disabled", "state_reason": "answered 410"} | OPEN | HELD,
            f"it is disabled (answered 410) {RESUME}",
        ),
        (OPEN | HELD, "its breaker is open until 2026-11-02T12:00:00Z, after HTTP 500"),
        (HELD, "its receiver answered 429 with Retry-After: it is held until 2026-11-02T12:00:00Z"),
        (HELD | {"held_by": None}, "its receiver asked for time"),
    ],
)
def test_endpoint_that_nothing_is_sent_to_says_until_when(
    change: dict[str, Any], said: str
) -> None:
    assert said in why_held_up(ROW | change)


def test_obstacles_of_a_replay_name_what_ends_them() -> None:
    states = [{"endpoint": "eu", "endpoint_state": each} for each in ("paused", "disabled")]
    rows = [row | {"state_reason": "\x1b[2J"} for row in states]
    for row, said in zip(rows, obstacles(rows), strict=True):
        assert f"endpoint eu is {row['endpoint_state']} (\\x1b[2J)" in said
        assert said.endswith("before `holdfast endpoint resume eu --reason TEXT`")
