"""Claims look further back for as long as there is something there."""

from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.delivery.store.days import ANY_TIME, NEAR, OLD, Days
from dispatcher.delivery.store.looks import BEGINNING

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


@pytest.fixture
def days() -> Days:
    return Days(now=lambda: NOW)


def test_range_reaches_as_far_again_behind_the_oldest(days: Days) -> None:
    found = days.widen([NOW - timedelta(days=2), NOW - WEEK])
    assert found == days.range == NEAR._replace(since=NOW - 2 * WEEK)


def test_what_is_missing_and_not_old_is_looked_for_at_any_time_once(days: Days) -> None:
    assert days.widen([]) == ANY_TIME
    assert days.range == NEAR


@pytest.mark.parametrize("begin", [BEGINNING, BEGINNING + WEEK, NOW + WEEK])
def test_range_holds_any_moment_whatever_this_clock_says(days: Days, begin: datetime) -> None:
    assert BEGINNING <= days.widen([begin]).since <= begin


@pytest.mark.parametrize(("age", "stays"), [(OLD - WEEK, False), (OLD / 2, False), (WEEK, True)])
def test_range_stays_wide_while_a_look_at_the_whole_meets_old_heads(
    days: Days, age: timedelta, stays: bool
) -> None:
    wide = days.widen([NOW - WEEK])
    days.narrow([None, NOW, NOW - age])
    assert days.range == (wide if stays else NEAR)
