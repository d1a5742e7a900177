"""What the console's screens say of replays, of the audit trail and of two bodies. Pure."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.dispatcher.api.console.forms.confirm import CHOSEN_MAX, numbers_of
from holdfast.dispatcher.api.console.rendering import replays as plans
from holdfast.dispatcher.api.console.rendering.audit import detail_text, page_of
from holdfast.dispatcher.api.console.rendering.diff import line_diff
from holdfast.dispatcher.api.console.rendering.filters import clock
from holdfast.dispatcher.operators.replays.views import hold_reason
from holdfast.sink.contract.exits import CommandError

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
KEY = "hf_" + "0" * 32
ID = "46dda797-e9af-4cfb-a85d-315b6e0c9d3c"


@pytest.mark.parametrize(
    ("action", "target", "address"),
    [
        ("dead.dismiss", "dead letter 7", "/dead/7"),
        ("quarantine.read", "quarantine 3", "/quarantine/3"),
        ("replay.apply", f"replay {ID}", f"/replays/{ID}"),
        ("entry.read", KEY, f"/entries/{KEY}"),
        ("entry.read", "payouts batch 7", "/batches/show?stream=payouts&batch_id=7"),
        ("endpoint.paused", "payouts", "/endpoints/payouts"),
        ("stream.adopt", "a b", "/batches?stream=a+b"),
        ("endpoint.paused", "../secrets", None),
        ("login", "alice", None),
        ("dead.dismiss", "dead letter 7/../..", None),
    ],
)
def test_target_of_an_action_is_linked_where_it_has_a_page(
    action: str, target: str, address: str | None
) -> None:
    assert page_of(action, target) == address


def test_values_of_headers_are_left_out_of_the_trail_at_any_depth() -> None:
    detail = {"before": {"headers": {"x-key": "secret"}}, "after": [{"headers": {"a": "secret"}}]}
    text = detail_text(detail)
    assert "secret" not in text
    assert "x-key" in text
    assert detail_text({}) == ""


def test_bodies_that_are_too_long_to_compare_are_shown_whole() -> None:
    many = "[" + ",".join(["1"] * 1_000) + "]"
    lines = line_diff(many, many)
    assert {line.side for line in lines} == {"then", "now"}
    assert [line.side for line in line_diff(None, "{}")] == ["now"]
    assert line_diff(None, None) == []


def _plan(**counts: Any) -> dict[str, Any]:
    return {
        "outside_window": False,
        "verb": "redeliver",
        "state": "planned",
        "item_count": 1,
        "counts": counts,
        "obstacles": [],
    }


def test_plan_warns_of_what_a_person_must_know() -> None:
    other = {"id": ID, "state": "planned", "actor": "alice", "entries": 2}
    plan = _plan(taken=1, beyond_limit=3, outside_window=4) | {"obstacles": ["it is paused"]}
    said = plans.warnings(plan, [other])
    assert len(said) == 5
    assert said[0] == "It is paused."
    assert "2 entries are in replay 46dda797 too (planned, by alice)" in said[1]
    assert "1 entry is left to a running replay" in said[2]
    assert "3 entries were omitted" in said[3]
    assert "this plan is refused" in said[4]
    assert plans.warnings(_plan(), ()) == []


def test_plan_can_be_applied_unless_keys_may_be_forgotten_without_a_word() -> None:
    assert plans.can_apply(_plan())
    assert not plans.can_apply(_plan(outside_window=1))
    assert plans.can_apply({**_plan(outside_window=1), "outside_window": True})
    for other in ({"verb": "reissue"}, {"state": "applying"}, {"item_count": 0}):
        assert not plans.can_apply({**_plan(), **other})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"endpoint_state": "paused"}, "the endpoint is paused"),
        ({"breaker": "open"}, "its breaker is open"),
        ({"held_until": NOON}, "held until 2026-11-02 12:00:00 UTC"),
    ],
)
def test_what_keeps_an_endpoint_is_said(changes: dict[str, Any], said: str | None) -> None:
    row = {"endpoint_state": "active", "breaker": "closed", "held_until": None, **changes}
    assert hold_reason(row, clock) == said


@pytest.mark.parametrize(
    "texts", [[], ["0"], ["-1"], ["one"], ["1" * 19], ["\u0661"], ["1"] * (CHOSEN_MAX + 1)]
)
def test_choice_that_is_no_numbers_is_refused(texts: list[str]) -> None:
    with pytest.raises(CommandError):
        numbers_of(texts)
    assert numbers_of(["3", "1", "3"]) == [3, 1]
