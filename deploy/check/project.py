"""The files that are checked, and the lists of the documents that they are compared with."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]

OVERLAYS = ("small", "production")

BUILD_SECONDS = 60

_SECRET = re.compile(r"^\| `([a-z-]+)` \| (.*?) \|", re.MULTILINE)
_METRIC = re.compile(r"^\| `(holdfast_\w+)` \|", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """One document of a YAML file, or of what kustomize makes of several."""

    place: str
    """What a fault begins with."""
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.content.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self.content.get("metadata", {}).get("name", ""))

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.content.get("metadata", {}).get("labels") or {})

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.content.get("spec") or {})

    def __str__(self) -> str:
        return f"{self.place}: {self.kind} {self.name}"


def loaded(text: str) -> list[Any]:
    """Return the documents of YAML text that are not empty. Raises `yaml.YAMLError`."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


class BuildError(Exception):
    """kustomize cannot build an overlay; says why."""


@dataclass(frozen=True)
class Project:
    """A checkout, or a copy of its `deploy/` and `docs/`."""

    root: Path = ROOT

    @property
    def kubernetes(self) -> Path:
        return self.root / "deploy" / "kubernetes"

    @property
    def compose(self) -> Path:
        return self.root / "deploy" / "compose"

    @property
    def dockerfile(self) -> Path:
        return self.root / "deploy" / "images" / "Dockerfile"

    @property
    def rules(self) -> Path:
        return self.root / "deploy" / "prometheus" / "holdfast.yml"

    def shown(self, path: Path) -> str:
        """Return a path as faults name it."""
        return path.relative_to(self.root).as_posix()

    @cached_property
    def secrets(self) -> dict[str, set[str]]:
        """The keys of each Secret that the page on Kubernetes lists; `*` stands for any."""
        page = (self.root / "docs" / "deploying" / "kubernetes.md").read_text()
        section = page.partition("\n## Secrets")[2].partition("\n## ")[0]
        return {
            name: set(re.findall(r"`([\w.*-]+)`", keys)) for name, keys in _SECRET.findall(section)
        }

    @cached_property
    def metrics(self) -> set[str]:
        """The metrics that the reference lists."""
        page = self.root / "docs" / "reference" / "metrics.md"
        return set(_METRIC.findall(page.read_text()))

    def files(self) -> list[Path]:
        """Return every YAML file of the manifests."""
        return sorted(self.kubernetes.rglob("*.yaml"))

    def overlay(self, name: str) -> list[Document]:
        """Return the documents of an overlay as `kubectl kustomize` builds them.

        Raises `BuildError`.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise BuildError("there is no kubectl on PATH")
        folder = self.kubernetes / "overlays" / name
        done = subprocess.run(
            (program, "kustomize", str(folder)),
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        if done.returncode:
            raise BuildError(done.stderr.strip())
        shown = f"overlay {name}"
        return [Document(shown, each) for each in loaded(done.stdout)]


def documents(project: Project, path: Path) -> Iterator[Document]:
    """Yield the documents of a file. Raises `yaml.YAMLError`."""
    for content in loaded(path.read_text()):
        yield Document(project.shown(path), content)
