"""A dependency with a licence that is not on the list, or with none, is named."""

import sysconfig
from pathlib import Path

import pytest

from holdfast.deploy.release import licences
from holdfast.deploy.release.requirements import FOLDER, pins

HERE = Path(sysconfig.get_paths()["purelib"])


def _installed(folder: Path, *words: str) -> Path:
    """A folder of packages with one package, `planted`, that says this of itself."""
    info = folder / "planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(("Name: planted", "Version: 1.0", *words, "")))
    return folder


def _faults(folder: Path, *words: str) -> list[str]:
    return licences.check([_installed(folder, *words)], pinned={("planted", "1.0")}).faults


def test_licences_of_what_is_installed_are_on_the_list() -> None:
    pinned = {pin for file in FOLDER.glob("*.txt") for pin in pins(file)}
    report = licences.check([HERE], pinned=pinned, complete=False)
    assert report.faults == []
    developers = {name for name, _ in pins(FOLDER / "dev.txt")}
    assert not [each for each in report.left_out if each.partition(":")[0] in developers]


@pytest.mark.parametrize(
    "lines",
    [
        ["License-Expression: MIT"],
        ["License-Expression: GPL-3.0-only OR Apache-2.0"],
        ["License-Expression: MIT AND (BSD-3-Clause OR GPL-2.0-only)"],
        ["License: BSD-2-Clause"],
        [
            "Classifier: License :: OSI Approved",
            "Classifier: License :: OSI Approved :: MIT License",
        ],
    ],
)
def test_licence_on_the_list_passes(lines: list[str], tmp_path: Path) -> None:
    assert _faults(tmp_path, *lines) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["License-Expression: AGPL-3.0-only"],
        ["License-Expression: MIT AND GPL-3.0-only"],
        ["License-Expression: LGPL-3.0-only"],
        ["License: GPL-3.0"],
        ["Classifier: License :: OSI Approved :: GNU General Public License v2 (GPLv2)"],
        [
            "Classifier: License :: OSI Approved :: MIT License",
            "Classifier: License :: OSI Approved :: GNU General Public License (GPL)",
        ],
    ],
)
def test_planted_bad_licence_is_named(lines: list[str], tmp_path: Path) -> None:
    [fault] = _faults(tmp_path, *lines)
    assert fault.startswith("planted: ")
    assert fault.endswith("is not allowed")


@pytest.mark.parametrize(
    "lines",
    [[], ["License: ours"], ["License-Expression: LicenseRef-Ours"], ["License: UNKNOWN"]],
)
def test_licence_that_is_not_known_is_a_fault(lines: list[str], tmp_path: Path) -> None:
    [fault] = _faults(tmp_path, *lines)
    assert "says no licence" in fault


def test_exception_is_for_one_licence_of_one_package(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    place = _installed(tmp_path, "License-Expression: GPL-3.0-only")
    for licence, count in (("GPL-3.0-only", 0), ("AGPL-3.0-only", 1)):
        rules.write_text(f'allowed = []\n[meanings]\n[exceptions.planted]\nlicence = "{licence}"\n')
        report = licences.check([place], pinned={("planted", "1.0")}, rules=rules)
        assert len(report.faults) == count


def test_package_that_is_not_installed_is_a_fault_of_a_release(tmp_path: Path) -> None:
    assert len(licences.check([tmp_path], pinned={("absent", "1")}).faults) == 1
    assert licences.check([tmp_path], pinned={("absent", "1")}, complete=False).faults == []
