"""What a dead letter holds up, and which commands help, told from its row."""

from typing import Any

import pytest

from holdfast.dispatcher.operators.dead_letters.rules import WAITING_MAX, what_helps, what_it_holds

ROW: dict[str, Any] = {
    "id": 7,
    "key": "hf_1",
    "endpoint": "payouts",
    "reason": "exhausted",
    "resolution": None,
    "holds_lane": True,
    "waiting": 2,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "2 later entries"),
        ({"waiting": 1}, "1 later entry of this subject waits"),
        ({"waiting": 0}, "next decision"),
        ({"waiting": WAITING_MAX}, "1000 or more"),
        ({"holds_lane": False}, "continues without it"),
        ({"resolution": "dismissed"}, "resolved"),
    ],
)
def test_what_waits_behind_it_is_said(change: dict[str, Any], said: str) -> None:
    assert said in what_it_holds(ROW | change)


@pytest.mark.parametrize(
    ("change", "commands"),
    [
        ({}, ["redeliver", "reissue", "dead"]),
        ({"reason": "rejected"}, ["redeliver", "reissue", "dead"]),
        ({"reason": "refused"}, ["endpoint", "redeliver", "reissue", "dead"]),
        ({"resolution": "reissued"}, []),
    ],
)
def test_what_is_open_can_be_sent_again_decided_anew_or_given_up(
    change: dict[str, Any], commands: list[str]
) -> None:
    assert [each.command.split()[1] for each in what_helps(ROW | change)] == commands


def test_later_entries_go_out_without_it_only_where_it_holds_them() -> None:
    *_, holding = what_helps(ROW)
    *_, beside = what_helps(ROW | {"holds_lane": False})
    assert ("--skip" in holding.command, "continues" in holding.effect) == (True, True)
    assert ("--skip" in beside.command, "continues" in beside.effect) == (False, False)


def test_repetition_is_named_as_one_and_redelivery_as_safe() -> None:
    redeliver, reissue, _ = what_helps(ROW)
    assert "safe" in redeliver.effect
    assert "REPEATED" in reissue.effect
