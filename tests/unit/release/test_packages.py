"""Packages of a release: their licences, known vulnerabilities and contents."""

import json
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from holdfast.deploy.release import checkpoint_jar, packages, requirements, vulnerabilities
from holdfast.deploy.release.__main__ import main
from holdfast.deploy.release.requirements import FOLDER, pins
from holdfast.sink.contract.exits import ExitCode

HERE = Path(sysconfig.get_paths()["purelib"])


def _installed(folder: Path, *words: str) -> Path:
    """A folder of packages with one package, `planted`, that says this of itself."""
    info = folder / "planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(("Name: planted", "Version: 1.0", *words, "")))
    return folder


def _faults(folder: Path, *words: str) -> list[str]:
    return requirements.check_licences(
        [_installed(folder, *words)], pinned={("planted", "1.0")}
    ).faults


def test_licences_of_what_is_installed_are_on_the_list() -> None:
    pinned = {pin for file in FOLDER.glob("*.txt") for pin in pins(file)}
    report = requirements.check_licences([HERE], pinned=pinned, complete=False)
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
    "lines", [[], ["License: ours"], ["License-Expression: LicenseRef-Ours"], ["License: UNKNOWN"]]
)
def test_licence_that_is_not_known_is_a_fault(lines: list[str], tmp_path: Path) -> None:
    [fault] = _faults(tmp_path, *lines)
    assert "says no licence" in fault


def test_exception_is_for_one_licence_of_one_package(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    place = _installed(tmp_path, "License-Expression: GPL-3.0-only")
    for licence, count in (("GPL-3.0-only", 0), ("AGPL-3.0-only", 1)):
        rules.write_text(f'allowed = []\n[meanings]\n[exceptions.planted]\nlicence = "{licence}"\n')
        report = requirements.check_licences([place], pinned={("planted", "1.0")}, rules=rules)
        assert len(report.faults) == count


def test_package_that_is_not_installed_is_a_fault_of_a_release(tmp_path: Path) -> None:
    assert len(requirements.check_licences([tmp_path], pinned={("absent", "1")}).faults) == 1
    assert (
        requirements.check_licences([tmp_path], pinned={("absent", "1")}, complete=False).faults
        == []
    )


PINS = {("planted", "1.5"), ("other", "2.0")}


def _record(**more: object) -> dict[str, object]:
    affected = {"package": {"ecosystem": "PyPI", "name": "Planted"}, **more}
    return {"id": "GHSA-planted", "affected": [affected]}


def _events(*events: Mapping[str, str]) -> dict[str, object]:
    return _record(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


def _found(folder: Path, record: Mapping[str, object]) -> list[str]:
    (folder / "GHSA-planted.json").write_text(json.dumps(record))
    return vulnerabilities.look_up(folder, PINS).faults


@pytest.mark.parametrize(
    "record",
    [
        _record(versions=["1.5"]),
        _events({"introduced": "0"}),
        _events({"introduced": "1.5"}, {"fixed": "1.6"}),
        _events({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "1.2"}),
        _events({"introduced": "0"}, {"last_affected": "1.5"}),
    ],
)
def test_version_that_is_affected_is_named(record: dict[str, object], tmp_path: Path) -> None:
    assert _found(tmp_path, record) == ["planted 1.5: GHSA-planted"]


@pytest.mark.parametrize(
    "record",
    [
        _record(versions=["1.4"]),
        _events({"introduced": "0"}, {"fixed": "1.5"}),
        _events({"introduced": "1.10"}),
        _events({"introduced": "0"}, {"last_affected": "1.4"}),
        {**_record(versions=["1.5"]), "withdrawn": "2026-01-01T00:00:00Z"},
        {"id": "x", "affected": [{"package": {"ecosystem": "npm", "name": "planted"}}]},
    ],
)
def test_version_that_is_not_affected_passes(record: dict[str, object], tmp_path: Path) -> None:
    assert _found(tmp_path, record) == []


def test_database_may_be_a_zip(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("GHSA-planted.json", json.dumps(_record(versions=["1.5"])))
    assert len(vulnerabilities.look_up(tmp_path / "all.zip", PINS).faults) == 1


def test_database_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no record"):
        vulnerabilities.look_up(tmp_path, PINS)


def _pip_audit(folder: Path, answer: str, code: int) -> Path:
    """A program that answers as pip-audit does."""
    (folder / "answer.json").write_text(answer)
    program = folder / "pip-audit"
    program.write_text(f'#!/bin/sh\ncat "{folder}/answer.json"\nexit {code}\n')
    program.chmod(0o755)
    return program


def test_service_that_answers_for_no_package_is_no_pass(tmp_path: Path) -> None:
    skipped = [{"name": name, "skip_reason": "not found"} for name, _ in PINS]
    program = _pip_audit(tmp_path, json.dumps({"dependencies": skipped}), 0)
    report = vulnerabilities.ask(program, PINS)
    assert report.result == "degraded"
    assert "2 of 2 packages" in report.left_out[0]


def test_service_that_is_not_reached_is_no_pass(tmp_path: Path) -> None:
    report = vulnerabilities.ask(_pip_audit(tmp_path, "", 1), PINS)
    assert report.result == "degraded"
    assert "not reached" in report.left_out[0]


def test_vulnerability_of_the_service_is_named(tmp_path: Path) -> None:
    results = {"name": "planted", "version": "1.5", "vulns": [{"id": "PYSEC-1"}]}
    program = _pip_audit(tmp_path, json.dumps({"dependencies": [results]}), 1)
    assert vulnerabilities.ask(program, PINS).faults == ["planted 1.5: PYSEC-1"]


PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "small"
version = "1"
[tool.setuptools]
include-package-data = false
packages = ["holdfast.sink"]
package-dir = {"holdfast.sink" = "sink", "holdfast.tests" = "tests"}
package-data = {"*" = ["*.sql", "*.txt"]}
"""

SETUP = """\
import time
from pathlib import Path
from setuptools import setup

Path("sink", "made.txt").write_text(str(time.time_ns()))
setup()
"""

FILES = {
    "MANIFEST.in": "graft sink\ngraft tests\ninclude MANIFEST.in",
    "pyproject.toml": PROJECT,
    "sink/__init__.py": "",
    "sink/rows.sql": "SELECT 1;",
    "tests/__init__.py": "",
}


def _project(root: Path, **more: str) -> Path:
    """A repository whose one commit has `FILES` and more, by path with `__` for `/`."""
    for name, text in {**FILES, **{key.replace("__", "/"): more[key] for key in more}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return _commit(root)


def _commit(root: Path) -> Path:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "--all"), (*author, "commit", "-q", "-m", "a")):
        subprocess.run(("git", *words), cwd=root, check=True)  # noqa: S607 - the developer's git
    return root


def _built(root: Path, work: Path) -> tuple[Path, Path]:
    work.mkdir()
    sdist, wheel = sorted(packages.build(work / "to", work, root), key=lambda each: each.suffix)
    return wheel, sdist


@pytest.mark.rest
def test_packages_are_complete_and_of_one_commit(tmp_path: Path) -> None:
    root = _project(tmp_path / "small")
    (root / "sink" / "not_committed.sql").write_text("SELECT 2;")
    assert list(packages.faults(*_built(root, tmp_path / "work"), root)) == []


@pytest.mark.rest
def test_wheel_without_a_statement_and_with_tests_is_named(tmp_path: Path) -> None:
    wrong = PROJECT.replace('["holdfast.sink"]', '["holdfast.sink", "holdfast.tests"]')
    root = _project(tmp_path / "small", **{"pyproject.toml": wrong.replace("*.sql", "*.md")})
    assert list(packages.faults(*_built(root, tmp_path / "work"), root)) == [
        "wheel: holdfast/sink/rows.sql is missing",
        "wheel: holdfast/tests/__init__.py is too much",
    ]


@pytest.mark.rest
def test_build_that_depends_on_its_time_is_refused(tmp_path: Path) -> None:
    root = _project(tmp_path / "small", **{"setup.py": SETUP})
    with pytest.raises(packages.PackageError, match="its bytes differ"):
        _built(root, tmp_path / "work")


@pytest.mark.parametrize("jdk", [True, False], ids=["javac", "ecj"])
def test_checkpoint_jar_has_the_same_bytes_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jdk: bool
) -> None:
    if not jdk:
        program = checkpoint_jar._java_program
        monkeypatch.setattr(
            checkpoint_jar, "_java_program", lambda name: program(name) if name == "java" else None
        )
    built = []
    for folder in (tmp_path / "one", tmp_path / "another" / "place"):
        (folder / checkpoint_jar.FOLDER).mkdir(parents=True)
        for source in checkpoint_jar.SOURCES:
            shutil.copy(checkpoint_jar.ROOT / source, folder / source)
        staged = checkpoint_jar.ROOT / ".holdfast"
        (folder / ".holdfast").symlink_to(staged)
        try:
            assert checkpoint_jar.build(folder)
        except checkpoint_jar.NoCompilerError as error:
            pytest.skip(str(error))
        assert not checkpoint_jar.build(folder)
        built.append((folder / checkpoint_jar.JAR).read_bytes())
    assert built[0] == built[1]


def test_unbuildable_images_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(tmp_path / "docker")
    assert main(("images", "--containers", program)) == ExitCode.DEGRADED
    assert f"left out: no {program} answers" in capsys.readouterr().out
