"""What a service may keep as its result: what comes back as it was, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.receiver import Receipt
from holdfast.receiver.claim.claiming import result_of
from holdfast.sink.contract.wire import ReceiptOutcome


def kept(result: Any) -> str:
    return str(result_of(Receipt("hf_1", ReceiptOutcome.APPLIED, result=result))["result"])


@pytest.mark.parametrize("result", [{"x": object()}, {(1, 2): 3}, b"x", {1}])
def test_result_that_json_has_no_form_for_is_a_type_error_in_our_words(result: Any) -> None:
    with pytest.raises(TypeError, match="result of hf_1"):
        kept(result)


def circular() -> list[Any]:
    result: list[Any] = []
    result.append(result)
    return result


def nested() -> list[Any]:
    result: list[Any] = []
    for _ in range(100_000):
        result = [result]
    return result


@pytest.mark.parametrize(
    "result",
    [
        float("nan"),
        {"x": float("-inf")},
        {"x": "a\x00b"},
        {"a\x00b": 1},
        ["\\\x00"],
        "\ud800",
        {"\udfff": 1},
        ["\ud83d", "\ude00"],
    ],
    ids=ascii,
)
def test_result_that_the_database_would_refuse_is_a_value_error_in_our_words(result: Any) -> None:
    with pytest.raises(ValueError, match="result of hf_1"):
        kept(result)


@pytest.mark.parametrize("make", [circular, nested])
def test_result_without_an_end_is_a_value_error_in_our_words(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="result of hf_1"):
        kept(make())


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"hold": 7}, '{"hold": 7}'),
        ("\\u0000", r'"\\u0000"'),
        ("\\ud800", r'"\\ud800"'),
        ("\U0001f600", r'"\ud83d\ude00"'),
        ("Müller", r'"M\u00fcller"'),
    ],
)
def test_result_that_looks_alike_is_kept(result: Any, text: str) -> None:
    assert kept(result) == text
