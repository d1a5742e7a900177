"""Filters of replays: what is refused, and that a stored one is the same again."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from holdfast.dispatcher.operators.replays.rules import (
    KEYS_MAX,
    ReplayFilter,
    ReplayFilterError,
    ReplayScope,
    filter_stored,
)

NOON = datetime(2025, 11, 3, 12, tzinfo=UTC)
WHOLE = ReplayFilter(
    endpoint="payouts",
    subject="m_482",
    stream="payouts",
    first_batch=3,
    last_batch=9,
    since=NOON,
    until=datetime(2025, 11, 3, 18, tzinfo=UTC),
    states=(ReplayScope.DEAD, ReplayScope.DELIVERED),
    types=("payout_hold.block",),
    keys=(UUID(int=5),),
)


def test_stored_filter_is_the_same_again() -> None:
    WHOLE.check()
    assert filter_stored(WHOLE.stored()) == WHOLE


def test_first_batch_zero_is_stored() -> None:
    given = ReplayFilter(stream="payouts", first_batch=0, last_batch=0)
    assert filter_stored(given.stored()) == given


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ReplayFilter(), "empty filter"),
        (ReplayFilter(first_batch=1), "give the stream"),
        (ReplayFilter(stream="s", first_batch=2, last_batch=1), "after the last"),
        (ReplayFilter(since=datetime(2025, 11, 3)), "offset from UTC"),  # noqa: DTZ001
        (ReplayFilter(since=NOON, until=NOON), "ends before it begins"),
        (ReplayFilter(keys=(UUID(int=1),) * (KEYS_MAX + 1)), "too many"),
    ],
)
def test_filter_that_cannot_be_meant_is_refused(given: ReplayFilter, why: str) -> None:
    with pytest.raises(ReplayFilterError, match=why):
        given.check()
