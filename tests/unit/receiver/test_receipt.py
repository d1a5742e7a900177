"""The answer: its signed receipt, its window, the data it is read from, and payouts."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.deploy.payouts.cli import printable
from holdfast.deploy.payouts.order import Action, HoldOrder
from holdfast.deploy.payouts.pages import render
from holdfast.receiver import (
    KEY_WINDOW_DEFAULT,
    BadData,
    Body,
    Inbox,
    Receipt,
    Refused,
    Secret,
    answer,
    receipt_is_genuine,
)
from holdfast.receiver.message.body import parse_body
from holdfast.receiver.message.window import key_window_text, prune_parameters
from holdfast.sink.contract.money import money
from holdfast.sink.contract.wire import KEY_WINDOW, ReceiptOutcome
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, body, hold, key_of, receipt

SECRET = Secret(KEY_BYTES)
KEY = key_of("m_482", 1)
APPLIED_AT = datetime(2026, 11, 2, 12, 15, 1, 250_000, tzinfo=UTC)


@pytest.mark.parametrize("outcome", ["applied", "duplicate", "stale"])
def test_receipt_is_signed_with_the_deliverys_secret(outcome: str) -> None:
    headers = answer(Receipt(KEY, ReceiptOutcome(outcome), APPLIED_AT), SECRET)
    content = json.loads(headers.body)
    assert headers.status == 200
    assert list(content) == ["key", "outcome", "applied_at", "receipt"]
    assert content["applied_at"] == "2026-11-02T12:15:01.250000Z"
    assert content["receipt"] == receipt(content)


def test_receipt_of_another_secret_or_outcome_is_not_genuine() -> None:
    content = json.loads(answer(Receipt(KEY, ReceiptOutcome.APPLIED, APPLIED_AT), SECRET).body)
    applied_at, signed = content["applied_at"], content["receipt"]
    applied, stale = ReceiptOutcome.APPLIED, ReceiptOutcome.STALE
    assert receipt_is_genuine(SECRET, KEY, applied, applied_at, signed)
    assert not receipt_is_genuine(SECRET, KEY, stale, applied_at, signed)
    assert not receipt_is_genuine(Secret(OTHER_KEY_BYTES), KEY, applied, applied_at, signed)
    assert not receipt_is_genuine(SECRET, KEY, applied, applied_at, "v1,\ud800")


@pytest.mark.parametrize(
    ("outcome", "status", "retry_after"), [("in_progress", 409, "1"), ("conflict", 422, None)]
)
def test_what_proves_nothing_carries_no_receipt(
    outcome: str, status: int, retry_after: str | None
) -> None:
    headers = answer(Receipt(KEY, ReceiptOutcome(outcome)), SECRET)
    assert (headers.status, headers.headers.get("retry-after")) == (status, retry_after)
    assert json.loads(headers.body) == {
        "key": KEY,
        "outcome": outcome,
        "applied_at": None,
        "receipt": None,
    }


def test_repeated_answer_says_so() -> None:
    first = answer(Receipt(KEY, ReceiptOutcome.APPLIED, APPLIED_AT), SECRET)
    again = answer(Receipt(KEY, ReceiptOutcome.DUPLICATE, APPLIED_AT, replayed=True), SECRET)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"


RETRIES_MAX = timedelta(days=30)
"""The longest budget that an endpoint may have."""


def test_default_outlasts_the_longest_retries_by_two_weeks() -> None:
    assert RETRIES_MAX + timedelta(days=14) <= KEY_WINDOW_DEFAULT
    assert key_window_text(KEY_WINDOW_DEFAULT) == "3888000"


def test_keys_kept_for_ever_are_reported_as_such() -> None:
    assert key_window_text(None) == "forever"
    with pytest.raises(ValueError, match="forever"):
        prune_parameters(None, 10)


@pytest.mark.parametrize("days", [-1, 0, 3, 6.99, 40_000])
def test_window_shorter_than_the_retries_is_refused(days: float) -> None:
    with pytest.raises(ValueError, match="retries for days"):
        Inbox(window=timedelta(days=days))


def test_nothing_is_not_a_piece_to_prune() -> None:
    with pytest.raises(ValueError, match="limit"):
        prune_parameters(KEY_WINDOW_DEFAULT, 0)


def test_only_answers_of_an_inbox_carry_the_window() -> None:
    receipt = Receipt(key_of("m", 1), ReceiptOutcome.IN_PROGRESS, key_window="forever")
    assert answer(receipt, Secret(KEY_BYTES)).headers[KEY_WINDOW] == "forever"
    made = Receipt(key_of("m", 1), ReceiptOutcome.IN_PROGRESS)
    assert KEY_WINDOW not in answer(made, Secret(KEY_BYTES)).headers


@pytest.mark.parametrize("name", ["", "a\x00b"])
def test_schema_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="schema name"):
        Inbox(name)


BODY = Body(
    "payout_hold.block",
    datetime(2026, 11, 2, tzinfo=UTC),
    1,
    "hf_0",
    {
        "text": "m_482",
        "empty": "",
        "long": "é" * 513,
        "number": 5,
        "yes": True,
        "null": None,
        "list": ["m_482"],
        "object": {"number": 5},
        "time": "2026-11-02T12:15:00Z",
    },
)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda: BODY.text("text"), "m_482"),
        (lambda: BODY.text("long", bytes_max=1026), "é" * 513),
        (lambda: BODY.integer("number", least=5, most=5), 5),
        (lambda: BODY.integer("object", "number"), 5),
        (lambda: BODY.boolean("yes"), True),
        (lambda: BODY.time("time"), datetime(2026, 11, 2, 12, 15, tzinfo=UTC)),
        (lambda: BODY.value("null"), None),
        (lambda: BODY.value("list"), ["m_482"]),
        (lambda: BODY.require_type("payout_hold.release", "payout_hold.block"), BODY.type),
    ],
)
def test_member_of_the_expected_form_is_returned(read: Callable[[], Any], value: object) -> None:
    assert read() == value


@pytest.mark.parametrize(
    ("read", "names"),
    [
        *((BODY.text, (n,)) for n in ("none", "null", "empty", "long", "number", "list", "object")),
        *((BODY.integer, (name,)) for name in ("none", "null", "text", "yes", "time", "list")),
        *((BODY.boolean, (name,)) for name in ("none", "null", "text", "number", "list")),
        *((BODY.time, (name,)) for name in ("none", "null", "text", "number", "object")),
        *((BODY.value, names) for names in (("none",), ("object", "none"), ("text", "x"))),
        (BODY.integer, ("list", "number")),
        (lambda name: BODY.integer(name, most=4), ("number",)),
        (lambda name: BODY.integer(name, least=6), ("number",)),
    ],
)
def test_other_member_is_refused_by_name(read: Callable[..., Any], names: tuple[str, ...]) -> None:
    with pytest.raises(BadData) as caught:
        read(*names)
    problem = caught.value.problem
    assert (problem.status, problem.reason) == (422, "bad_data")
    assert problem.detail.startswith(f"`data.{'.'.join(names)}` is ")


def test_unexpected_type_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        BODY.require_type("payout_hold.release")
    assert (caught.value.problem.status, caught.value.problem.reason) == (400, "unknown_type")


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
