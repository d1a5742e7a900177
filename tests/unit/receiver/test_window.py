"""How long keys are kept, and how it is said."""

from datetime import timedelta

import pytest

from holdfast.receiver import KEY_WINDOW_DEFAULT, Inbox, Receipt, Secret, answer
from holdfast.receiver.message.window import key_window_text, prune_parameters
from holdfast.sink.contract.wire import KEY_WINDOW, ReceiptOutcome
from tests.support.dispatch.sender import KEY_BYTES, key_of

RETRIES_MAX = timedelta(days=30)
"""The longest budget that an endpoint may have."""


def test_default_outlasts_the_longest_retries_by_two_weeks() -> None:
    assert RETRIES_MAX + timedelta(days=14) <= KEY_WINDOW_DEFAULT
    assert key_window_text(KEY_WINDOW_DEFAULT) == "3888000"


def test_keys_that_are_kept_for_ever_are_said_to_be() -> None:
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
