"""Settings that make no sense are refused, and the DSN is never shown."""

from typing import Any

import pytest

from holdfast.dispatcher.delivery.settings import Settings


@pytest.mark.parametrize(
    "given",
    [
        {"concurrency": 0},
        {"concurrency": 5000},
        {"claim_lanes": -1},
        {"entries_per_lane": 0},
        {"lease_seconds": 1.0},
        {"lease_seconds": float("nan")},
        {"lease_seconds": 601.0},
        {"stop_seconds": -1.0},
    ],
)
def test_senseless_setting_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Settings(dsn="", **given)


def test_representation_hides_the_dsn() -> None:
    assert "hunter2" not in repr(Settings(dsn="postgresql://u:hunter2@h/d"))
