"""A failpoint does nothing unless it is armed, and then exactly what it was armed for."""

from pathlib import Path

import pytest

from sink.contract import failpoints
from sink.contract.failpoints import FailpointHit, failpoint


@pytest.fixture(autouse=True)
def _fresh_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_passed", {})


def test_unarmed_point_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", None)
    assert failpoint("S1") is None


def test_armed_point_acts_on_its_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", "S1=raise@2;S2=raise")
    assert failpoint("S1") is None
    with pytest.raises(FailpointHit, match="S1"):
        failpoint("S1")
    assert failpoint("S1") is None
    with pytest.raises(FailpointHit, match="S2"):
        failpoint("S2")


def test_misspelt_action_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(failpoints, "_armed", f"S1=explode:{tmp_path}")
    with pytest.raises(ValueError, match="explode"):
        failpoint("S1")
