"""Durations that no stream could run with are refused."""

import pytest

from holdfast.spark_app.exposure.settings import Settings


@pytest.mark.parametrize(
    "wrong", [{"window_us": 0}, {"late_cutoff_us": -1000}, {"watermark_delay_us": 1}]
)
def test_impossible_duration_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .* expected whole milliseconds"):
        Settings(**wrong)
