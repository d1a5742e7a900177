"""What an image installs is what the tests run with."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parents[3] / "requirements"

DOCKERFILE = REQUIREMENTS.parent / "deploy" / "images" / "Dockerfile"

_PIN = re.compile(r"^([\w.-]+==\S+(?: ;[^\\\n]*)?)", re.MULTILINE)


def _pins(name: str) -> set[str]:
    # A marker may be weaker where fewer packages ask for one: names and versions are compared.
    text = (REQUIREMENTS / name).read_text()
    return {pin.partition(" ;")[0].strip() for pin in _PIN.findall(text)}


@pytest.mark.parametrize("name", ["build", "migrate", "dispatcher", "api", "job", "cluster"])
def test_versions_of_an_image_are_those_of_the_tests(name: str) -> None:
    pins = _pins(f"{name}.txt")
    assert pins
    assert pins <= _pins("dev.txt")


def test_every_install_of_the_dockerfile_has_hashes_or_is_the_wheel() -> None:
    installs = re.findall(r"pip .*?install (.*)", DOCKERFILE.read_text())
    assert len(installs) == 9
    wheel = re.compile(r"--no-deps /build/wheels/holdfast-\*\.whl")
    assert [
        each
        for each in installs
        if not each.startswith("--require-hashes") and wheel.match(each) is None
    ] == []


def test_builder_sees_the_packages_alone() -> None:
    lines = (DOCKERFILE.parents[2] / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {
        *("LICENSE", "README.md", "pyproject.toml", "requirements", "setup.py"),
        *("deploy", "dispatcher", "migrations", "sink", "spark_app"),
    }
