"""Wheel and sdist of a small project: what differs between builds, or from the commit, is named.

Real: git and hatchling.
"""

import subprocess
from pathlib import Path

import pytest

from deploy.release import packages
from deploy.release.__main__ import main
from sink.contract.exits import ExitCode

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "small"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["sink"]
"""

HOOK = """\
import time
from pathlib import Path
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        (Path(self.root) / "sink" / "made.txt").write_text(str(time.time_ns()))
"""

FILES = {"pyproject.toml": PROJECT, "sink/rows.sql": "SELECT 1;", "tests/test_rows.py": ""}


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


def test_packages_of_a_commit_are_whole_and_of_it_alone(tmp_path: Path) -> None:
    root = _project(tmp_path / "small")
    (root / "sink" / "not_committed.sql").write_text("SELECT 2;")
    assert list(packages.faults(*_built(root, tmp_path / "work"), root)) == []


def test_wheel_without_a_statement_and_with_tests_is_named(tmp_path: Path) -> None:
    wrong = PROJECT.replace('["sink"]', '["sink", "tests"]\nexclude = ["*.sql"]')
    root = _project(tmp_path / "small", **{"sink__a.py": "", "pyproject.toml": wrong})
    assert list(packages.faults(*_built(root, tmp_path / "work"), root)) == [
        "wheel: sink/rows.sql is missing",
        "wheel: tests/test_rows.py is too much",
    ]


def test_build_that_depends_on_its_time_is_refused(tmp_path: Path) -> None:
    hook = f"{PROJECT}[tool.hatch.build.hooks.custom]\npath = 'hook.py'\n"
    root = _project(tmp_path / "small", **{"hook.py": HOOK, "pyproject.toml": hook})
    with pytest.raises(packages.PackageError, match="its bytes differ"):
        _built(root, tmp_path / "work")


def test_images_that_nobody_can_build_are_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(tmp_path / "docker")
    assert main(("images", "--containers", program)) == ExitCode.DEGRADED
    assert f"left out: no {program} answers" in capsys.readouterr().out
