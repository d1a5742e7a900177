"""A failpoint does nothing unless it is armed, and then exactly what it was armed for."""

import re
from pathlib import Path

import pytest

from holdfast.sink.contract import failpoints
from holdfast.sink.contract.failpoints import FailpointHit, failpoint
from tests.support.pages import ROOT

PACKAGES = ("sink", "dispatcher", "spark_app", "deploy", "migrations")


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


def test_every_point_is_documented_and_named_by_a_test() -> None:
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    called = re.compile(r'\bfailpoint\(f?"([A-Z]\d+)')
    points = {name for path in sources for name in called.findall(path.read_text())}
    page = (ROOT / "docs" / "failures.md").read_text()
    rows = " ".join(re.findall(r"^\| ([^|]*[A-LN-Z]\d[^|]*) \|", page, re.MULTILINE))
    assert set(re.findall(r"\b[A-LN-Z]\d+\b", rows)) == points
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert {each for each in points if not re.search(rf"\b{each}\b", tests)} == set()
