"""The payouts service's pure half: orders, money, the page."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.deploy.payouts.cli import printable
from holdfast.deploy.payouts.order import Action, HoldOrder
from holdfast.deploy.payouts.pages import render
from holdfast.receiver import Refused
from holdfast.receiver.message.body import parse_body
from holdfast.sink.contract.money import money
from tests.support.dispatch.sender import body, hold

COUNTS = dict.fromkeys(
    ("held", "applied", "duplicate", "stale", "in_progress", "conflict", "refused"), 0
) | {"refused_transition": 0}


def test_payout_hold_is_understood() -> None:
    order = HoldOrder.of(parse_body(body(action="release")))
    assert (order.merchant_id, order.action) == ("m_482", Action.RELEASE)
    assert (order.exposure_minor, order.currency) == (2_200_000, "USD")
    assert order.window_end == datetime(2026, 11, 2, 12, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "name", ["refund.block", "payout_hold", "payout_hold.pause", "payout_hold.block.x"]
)
def test_unknown_type_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        HoldOrder.of(parse_body(body(type=name)))
    assert refused.value.problem.reason == "unknown_type"


@pytest.mark.parametrize(
    "changes",
    [
        {"merchant_id": ""},
        {"merchant_id": "x" * 1025},
        {"merchant_id": 482},
        {"action": "release"},
        {"window_end": "2026-11-02T12:00:00Z"},
        {"window_start": "noon"},
        {"window_start": None},
        {"revision": 0},
        {"revision": 2**31},
        {"exposure_minor": "8500000"},
        {"exposure_minor": True},
        {"limit_minor": None},
        {"currency": "usd"},
        {"currency": "US"},
        {"policy_version": ""},
    ],
    ids=str,
)
def test_order_with_a_bad_member_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        HoldOrder.of(parse_body(body(data=hold("m_482", "block", **changes))))
    assert refused.value.problem.reason == "bad_data"


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (8_500_000, "USD", "85,000.00 USD"),
        (-1_800_005, "USD", "-18,000.05 USD"),
        (0, "EUR", "0.00 EUR"),
        (8_500_000, "JPY", "8,500,000 JPY"),
        (1_005, "KWD", "1.005 KWD"),
    ],
)
def test_money_has_the_digits_of_its_currency(minor: int, currency: str, text: str) -> None:
    assert money(minor, currency) == text


def test_page_escapes_whatever_came_over_the_wire() -> None:
    canary = "<script>alert('x')</script>\"&{{7*7}}$title"
    now = datetime(2026, 11, 2, 12, 30, tzinfo=UTC)
    amounts = {"exposure_minor": 1, "limit_minor": 1, "currency": canary, "sequence": 1}
    times = {"since": now, "window_start": now, "window_end": now, "applied_at": now}
    row = {"merchant_id": canary, "key": canary, "action": canary, "effect": canary}
    text = render.page([row | amounts | times], [row | amounts | times], COUNTS, next_after=canary)
    assert "<script" not in text
    assert "{{7*7}}$title" in text
    assert text.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;&amp;") == 8


def test_page_asks_to_look_at_what_should_never_happen() -> None:
    assert "Check:" not in render.page([], [], COUNTS, next_after=None)
    text = render.page([], [], COUNTS | {"conflict": 1, "refused_transition": 2}, next_after=None)
    assert "Check: Conflicts, Refused transitions." in text


def test_terminal_is_not_steered_by_a_name() -> None:
    assert printable("m\x1b[2J\n\u202e é") == "m\\u001b[2J\\u000a\\u202e é"
