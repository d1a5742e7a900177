"""The folders of this repository as one package, `holdfast`, without its own tools."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
JAR_TOOL = runpy.run_path(str(ROOT / "deploy/release/checkpoint_jar.py"))

FOLDERS = {
    "holdfast.deploy": "deploy",
    "holdfast.dispatcher": "dispatcher",
    "holdfast.examples.order_review": "docs/examples/order_review",
    "holdfast.migrations": "migrations",
    "holdfast.receiver": "dispatcher/receiver",
    "holdfast.sink": "sink",
    "holdfast.spark_app": "spark_app",
    "holdfast.testing": "sink/testing",
}

LEFT_OUT = {
    "deploy/check",
    "deploy/compose/secrets",
    "deploy/kubernetes",
    "deploy/release",
    "deploy/runbook",
    "dispatcher/receiver",  # it is `holdfast.receiver`
    "sink/testing",  # it is `holdfast.testing`
    "dispatcher/receiver/snippets",  # other languages: to copy, not to import
}

DATA_ONLY = {"deploy/grafana"}
"""The dashboards are installed, their generator is not."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def packages(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield a package and those below it, with their folders."""
    yield name, folder
    for each in sorted(folder.iterdir()):
        if (each / "__init__.py").exists() and _name(each) not in LEFT_OUT | DATA_ONLY:
            yield from packages(f"{name}.{each.name}", each)


def data(package: Path, folder: Path) -> Iterator[str]:
    """Yield the files of a package that are not Python, also from folders that are no packages."""
    for each in sorted(folder.iterdir()):
        if each.is_file() and each.suffix not in {".py", ".pyc"}:
            yield str(each.relative_to(package))
        package_inside = (each / "__init__.py").exists() and _name(each) not in DATA_ONLY
        if each.is_dir() and not package_inside and _name(each) not in LEFT_OUT:
            yield from data(package, each)


try:
    JAR_TOOL["build"]()
except JAR_TOOL["NoCompilerError"] as error:
    sys.stderr.write(f"Without {JAR_TOOL['JAR']}, for object stores: {error}.\n")

installed = dict(each for name, path in FOLDERS.items() for each in packages(name, ROOT / path))
setup(
    packages=sorted(installed),
    package_dir=FOLDERS,
    package_data={name: list(data(folder, folder)) for name, folder in installed.items()},
)
