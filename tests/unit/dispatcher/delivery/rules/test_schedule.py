"""When a retry is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.delivery.rules.schedule import RETRY_AFTER_SECONDS_MAX, retry_delay_us

SCHEDULE = (5, 30, 120)
SECOND = 1_000_000


def test_each_attempt_waits_for_its_step_and_the_last_has_none() -> None:
    delays = [retry_delay_us(SCHEDULE, number, draw=0.5) for number in (1, 2, 3, 4)]
    assert delays == [5 * SECOND, 30 * SECOND, 120 * SECOND, None]


@given(
    schedule=st.lists(st.integers(0, 7 * 86400), min_size=1, max_size=32),
    number=st.integers(1, 40),
    draw=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.floats(0, 1e12),
    conflict=st.booleans(),
)
def test_delay_is_within_its_bounds(
    schedule: list[int], number: int, draw: float, asked: float | None, conflict: bool
) -> None:
    delay = retry_delay_us(schedule, number, draw=draw, asked_seconds=asked, conflict=conflict)
    if number > len(schedule):
        assert delay is None
        return
    assert delay is not None
    step = schedule[number - 1]
    longest = max(step * 1.2, min(asked or 0, RETRY_AFTER_SECONDS_MAX) * 1.1)
    assert (0 if conflict else round(step * 0.8 * SECOND)) <= delay <= longest * SECOND + 1


def test_receiver_may_ask_for_more_time_but_not_for_less() -> None:
    assert retry_delay_us(SCHEDULE, 1, draw=0, asked_seconds=600) == 600 * SECOND
    assert retry_delay_us(SCHEDULE, 2, draw=0.5, asked_seconds=0) == 30 * SECOND
    assert retry_delay_us(SCHEDULE, 1, draw=0, asked_seconds=1e9) == 86400 * SECOND


@pytest.mark.parametrize(("number", "seconds"), [(1, 5), (2, 5), (3, 5), (4, 600)])
def test_running_request_is_asked_again_soon_but_not_for_ever(number: int, seconds: int) -> None:
    schedule = (5, 30, 120, 600)
    assert retry_delay_us(schedule, number, draw=0.5, conflict=True) == seconds * SECOND
