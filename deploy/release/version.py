"""One version: `pyproject.toml` has it, and every file that repeats it is compared.

The command, the API, a savepoint, the tags and labels of images and the bills of materials read it
where they are made. What cannot read it is in `PLACES`.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

UNRELEASED = "unreleased"
"""What the changelog has for a date until the release is made."""


@dataclass(frozen=True)
class Place:
    """Files, by a glob from the root, and what in them must be the version: group 1."""

    files: str
    pattern: str

    def found(self, root: Path) -> Iterator[tuple[Path, str]]:
        """Yield each file and each version in it."""
        for path in sorted(root.glob(self.files)):
            for text in re.findall(self.pattern, path.read_text(), re.MULTILINE):
                yield path.relative_to(root), text


PLACES = (
    Place("deploy/compose/stack.env", r"^HOLDFAST_VERSION=(.*)$"),
    Place("deploy/kubernetes/**/*.yaml", r"\bholdfast-\w+:(\d\S*)"),
    Place("deploy/kubernetes/**/*.yaml", r"app\.kubernetes\.io/version: \"?([^\s\"]+)"),
    Place("docs/**/*.md", r"\bholdfast-(\d+(?:\.\w+)*?)(?=-py|\.tar)"),
    Place("tests/contract/vectors/openapi.json", r'"info": \{[^}]*"version": "([^"]*)"'),
)

_HEADING = re.compile(r"^## (\S+)(?: - (\S+))?$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def current(root: Path = ROOT) -> str:
    """Return the version. Raises `KeyError` if the project has none."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def faults(root: Path = ROOT, *, dated: bool = False) -> Iterator[str]:
    """Yield every place that has another version, or none; `dated` asks for a release's date."""
    version = current(root)
    for place in PLACES:
        versions = list(place.found(root))
        if not versions:
            yield f"{place.files}: nothing there matches {place.pattern}"
        yield from (
            f"{path}: {each} is not {version}" for path, each in versions if each != version
        )
    yield from _of_the_changelog((root / "CHANGELOG.md").read_text(), version, dated=dated)


def _of_the_changelog(text: str, version: str, *, dated: bool) -> Iterator[str]:
    heading = _HEADING.search(text)
    if heading is None or heading[1] != version:
        yield f"CHANGELOG.md: its first section is not {version}"
        return
    if not _DATE.fullmatch(heading[2] or "") and (dated or heading[2] != UNRELEASED):
        yield f"CHANGELOG.md: {version} has no date (YYYY-MM-DD)"
    section = re.split(r"^## ", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    if "\n### Upgrade notes\n" not in section:
        yield f"CHANGELOG.md: {version} has no section 'Upgrade notes'"
