"""What `holdfast endpoint apply` would do with what is there."""

from typing import Any

import pytest

from dispatcher.operators.endpoints.file import Action, Step, plan
from dispatcher.operators.endpoints.store import DEFAULTS

WANTED = {**DEFAULTS, "name": "payouts", "url": "https://a.example/", "secret_refs": ["env:S"]}


def one(wanted: dict[str, Any], row: dict[str, Any] | None = None, **state: Any) -> Step:
    there = {} if row is None else {"payouts": {**row, "state": "active", "leased_lanes": 0}}
    for each in there.values():
        each.update(state)
    [step] = plan({"payouts": wanted}, there)
    return step


def test_an_endpoint_that_is_not_there_is_added() -> None:
    step = one(WANTED)
    assert (step.action, step.before, step.blocked) == (Action.ADD, {}, None)
    assert {**step.after, "name": "payouts"} == WANTED


def test_one_that_is_like_this_already_is_left_as_it_is() -> None:
    assert one(WANTED, WANTED).action is Action.NOTHING


def test_a_change_has_both_values_of_what_differs_alone() -> None:
    step = one({**WANTED, "rate_per_second": 5}, WANTED)
    assert (step.action, step.before, step.after) == (
        Action.CHANGE,
        {"rate_per_second": None},
        {"rate_per_second": 5},
    )


def test_the_same_networks_in_another_form_are_no_difference() -> None:
    row = {**WANTED, "allow_cidrs": ["::ffff:10.0.0.0/104", "10.0.0.0/8"]}
    assert one({**WANTED, "allow_cidrs": ["10.0.0.0/8", "::ffff:a00:0/104"]}, row).action is (
        Action.NOTHING
    )


@pytest.mark.parametrize(
    ("state", "leased", "words"),
    [("active", 0, "endpoint pause payouts"), ("paused", 2, "2 subjects"), ("paused", 0, None)],
)
def test_other_types_wait_until_nothing_is_sent(state: str, leased: int, words: str | None) -> None:
    step = one({**WANTED, "types": ["a"]}, WANTED, state=state, leased_lanes=leased)
    assert step.blocked is None if words is None else words in str(step.blocked)
