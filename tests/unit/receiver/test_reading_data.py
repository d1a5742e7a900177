"""The typed way to a delivery's data: the value, or `BadData` with the member's name."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.receiver import BadData, Body, Refused

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
