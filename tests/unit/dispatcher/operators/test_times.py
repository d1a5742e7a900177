"""Times as a person writes them mean one moment, by the clock that they are given."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.operators.common.times import exact, when

NOW = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("2h", NOW - timedelta(hours=2)),
        ("1w", NOW - timedelta(days=7)),
        (" 0s ", NOW),
        ("today", datetime(2026, 11, 2, tzinfo=UTC)),
        ("Yesterday", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-10-30", datetime(2026, 10, 30, tzinfo=UTC)),
        ("2026-11-02T01:00:00+01:00", datetime(2026, 11, 2, tzinfo=UTC)),
        ("999999w", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_time_means_a_moment_by_the_clock(text: str, moment: datetime) -> None:
    assert when(text).at(NOW) == moment


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2h30m", "-2h", "1_0h", "٢h", "2026-11-02T12:00:00", "2026-13-01", "1762085700"],
)
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        when(text)


@pytest.mark.parametrize("text", ["2h", "today", "0s"])
def test_exact_time_depends_on_no_clock(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        exact(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_time_is_read_as_it_is_written(moment: datetime) -> None:
    assert exact(moment.isoformat()) == when(moment.isoformat()).at(NOW) == moment
