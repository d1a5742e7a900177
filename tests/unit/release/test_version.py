"""`pyproject.toml` has the version; a file that repeats another one is named."""

import re
import shutil
from pathlib import Path

import pytest

from holdfast.deploy.release import version
from holdfast.deploy.release.version import PLACES, ROOT, Place


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name the version."""
    for each in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / each, tmp_path)
    for path, _ in (match for place in PLACES for match in place.found(ROOT)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def _edit(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1
    file.write_text(text)


def test_every_file_has_the_version_of_the_project() -> None:
    assert list(version.faults()) == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.files} {place.pattern[:20]}")
def test_another_version_in_any_place_is_named(place: Place, copy: Path) -> None:
    assert list(version.faults(copy)) == []
    path, _ = next(place.found(copy))
    match = re.search(place.pattern, (copy / path).read_text(), re.MULTILINE)
    assert match is not None
    _edit(copy / path, re.escape(match[0]), match[0].replace(match[1], "9.9.9"))
    assert [each for each in version.faults(copy) if str(path) in each and "9.9.9" in each]


def test_place_in_which_nothing_is_found_is_named(copy: Path) -> None:
    (copy / "deploy" / "compose" / "stack.env").unlink()
    [fault] = version.faults(copy)
    assert fault.startswith("deploy/compose/stack.env: nothing")


def test_new_version_without_its_changes_is_named(copy: Path) -> None:
    _edit(copy / "pyproject.toml", r'^version = ".*"', 'version = "9.9.9"')
    assert "CHANGELOG.md: its first section is not 9.9.9" in list(version.faults(copy))


def test_changelog_without_upgrade_notes_is_named(copy: Path) -> None:
    _edit(copy / "CHANGELOG.md", "^### Upgrade notes$", "### Upgrades")
    [fault] = version.faults(copy)
    assert "Upgrade notes" in fault


def test_release_has_a_date(copy: Path) -> None:
    heading = rf"^## {re.escape(version.current())}.*$"
    _edit(copy / "CHANGELOG.md", heading, f"## {version.current()} - {version.UNRELEASED}")
    assert len(list(version.faults(copy, dated=True))) == 1
    _edit(copy / "CHANGELOG.md", heading, f"## {version.current()} - 2026-12-01")
    assert list(version.faults(copy, dated=True)) == []
