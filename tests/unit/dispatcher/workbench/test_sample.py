"""The delivery that `holdfast trigger` composes: complete, repeatable, checked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.deploy.payouts.order import Action, HoldOrder
from holdfast.dispatcher.workbench.listen.sample import (
    SampleDelivery,
    SampleError,
    compose,
    data_of,
)
from holdfast.receiver.message.body import parse_body
from holdfast.sink.contract.envelope import BODY_BYTES_MAX


def made(type_: str = "payout_hold.block", **changes: Any) -> SampleDelivery:
    given: dict[str, Any] = {"subject": "m_test", "sequence": 1, "data": None, "changes": []}
    return compose(type_, **given | changes)


@pytest.mark.parametrize("action", list(Action))
def test_hold_is_an_order_that_the_payouts_service_understands(action: Action) -> None:
    sample = made(f"payout_hold.{action}", subject="m_7", sequence=3)
    body = parse_body(sample.body)
    order = HoldOrder.of(body)
    assert (order.merchant_id, order.action, body.sequence) == ("m_7", action, 3)
    assert (order.exposure_minor > order.limit_minor) is (action is Action.BLOCK)
    assert body.key == sample.key.text


def test_the_same_arguments_make_the_same_bytes_and_other_data_keeps_the_key() -> None:
    assert made() == made()
    changed = made(changes=["exposure_minor=1"])
    assert (changed.key, changed.body == made().body) == (made().key, False)


@pytest.mark.parametrize("changes", [{"subject": "m_2"}, {"sequence": 2}])
def test_another_decision_has_another_key(changes: dict[str, Any]) -> None:
    assert made(**changes).key != made().key
    assert made("payout_hold.release").key != made().key


def test_members_are_json_where_they_are_json_and_text_where_not() -> None:
    changes = ["a=5", "b=five", 'c="5"', "d=[1]", "e=true", "f=", "g=x=y"]
    data = parse_body(made("note.added", changes=changes).body).data
    assert data == {
        "merchant_id": "m_test",
        "a": 5,
        "b": "five",
        "c": "5",
        "d": [1],
        "e": True,
        "f": "",
        "g": "x=y",
    }


def test_given_data_key_and_time_are_taken() -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    sample = made(data={"x": 1}, key="hf_" + "0" * 32, occurred_at=at)
    body = parse_body(sample.body)
    assert (body.data, body.key, body.timestamp) == ({"x": 1}, "hf_" + "0" * 32, at)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"type_": "a b"}, "is not a type"),
        ({"type_": "a." * 70 + "b"}, "is not a type"),
        ({"sequence": 0}, "--sequence"),
        ({"sequence": 2**53}, "--sequence"),
        ({"subject": ""}, "--subject"),
        ({"key": "hf_1"}, "is not a key"),
        ({"changes": ["novalue"]}, "is not name=value"),
        ({"changes": ["a=1.5"]}, "no canonical form"),
        ({"changes": [f"a={'x' * BODY_BYTES_MAX}"]}, "are allowed"),
    ],
)
def test_invalid_argument_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(SampleError, match=says):
        made(**arguments)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff"])
def test_data_must_be_a_json_object(text: bytes) -> None:
    with pytest.raises(SampleError, match="--data"):
        data_of(text)
