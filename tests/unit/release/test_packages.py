"""Wheel and sdist of a small project: what differs between builds, or from the commit, is named.

Real: git and setuptools.
"""

import subprocess
from pathlib import Path

import pytest

from holdfast.deploy.release import packages
from holdfast.deploy.release.__main__ import main
from holdfast.sink.contract.exits import ExitCode

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
def test_packages_of_a_commit_are_whole_and_of_it_alone(tmp_path: Path) -> None:
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


def test_unbuildable_images_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(tmp_path / "docker")
    assert main(("images", "--containers", program)) == ExitCode.DEGRADED
    assert f"left out: no {program} answers" in capsys.readouterr().out
