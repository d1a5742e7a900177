"""The site of the documents: the Markdown of the repository as it is, with the index as navigation.

The pages are copied into a folder of their own with the files that they link to, at the same
paths, so that a link that leads somewhere here does so in the site.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from holdfast.deploy.release import version
from holdfast.deploy.release.version import ROOT

SITE = Path(__file__).parent / "site"
WORK = ROOT / ".holdfast" / "docs"
"""Holds the environment of MkDocs (`bin/`) and mermaid.min.js, both made by `make`."""

FOLDERS = ("docs", "sink", "dispatcher", "migrations", "spark_app", "deploy", "tests")

INDEX = "docs/README.md"

DIAGRAMS = "mermaid.min.js"

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


class SiteError(Exception):
    """MkDocs did not build the site; says why."""


def pages(root: Path = ROOT) -> list[Path]:
    """Return every page that people read."""
    inner = (page for each in FOLDERS for page in (root / each).rglob("*.md"))
    return sorted([*root.glob("*.md"), *inner])


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield each link of a page to the repository: its text, the path it means and its anchor."""
    for text, link in _LINK.findall(_CODE.sub("`code`", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" not in path:
            yield text, (page.parent / path).resolve() if path else page, anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


def broken(root: Path = ROOT) -> Iterator[str]:
    """Yield each link of a page that leads to no file or heading."""
    for page in pages(root):
        for text, path, anchor in links(page):
            if not path.exists() or (anchor and anchor not in anchors(path)):
                yield f"{page.relative_to(root).as_posix()}: the link '{text}' leads nowhere"


def navigation(root: Path = ROOT) -> list[object]:
    """Return the sections of the index with their pages, as MkDocs takes them."""
    index = root / INDEX
    entries: list[object] = [{"Home": ["README.md", INDEX]}]
    parts = _SECTION.split(index.read_text())
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        linked = [
            (index.parent / link.partition("#")[0]).resolve() for _, link in _LINK.findall(text)
        ]
        entries.append({title: [_entry(path, root) for path in dict.fromkeys(linked)]})
    return entries


def _entry(path: Path, root: Path) -> object:
    """Return a page, or with its README a folder's pages."""
    beside = sorted(each for each in path.parent.glob("*.md") if each != path)
    names = [each.relative_to(root).as_posix() for each in (path, *beside)]
    if path.name != "README.md" or len(names) == 1:
        return names[0]
    return {path.read_text().partition("\n")[0].lstrip("# "): names}


def stage(to: Path, root: Path = ROOT) -> None:
    """Copy the pages and what they link to into an empty folder, at their paths."""
    read = pages(root)
    linked = {path for page in read for _, path, _ in links(page) if path.is_file()}
    for path in {*read, *linked}:
        target = to / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(SITE / "site.css", to / "site.css")


def build(to: Path, root: Path = ROOT, work: Path = WORK) -> bool:
    """Build the site into the folder `to`; returns whether diagrams are drawn.

    Without mermaid.min.js in `work` they are shown as their text. Raises `SiteError`.
    """
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(to, ignore_errors=True)
    stage(source, root)
    drawn = (work / DIAGRAMS).exists()
    if drawn:
        shutil.copyfile(work / DIAGRAMS, source / DIAGRAMS)
    settings = {
        "INHERIT": str(SITE / "mkdocs.yml"),
        "docs_dir": str(source),
        "site_dir": str(to.resolve()),
        "hooks": [str(SITE / "hooks.py")],
        "nav": navigation(root),
        "copyright": f"Holdfast {version.current(root)}, Apache-2.0",
    }
    file = work / "mkdocs.yml"
    file.write_text(json.dumps(settings))
    command = (str(work / "bin" / "mkdocs"), "build", "--strict", "--config-file")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        (*command, str(file)), capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise SiteError(done.stderr.strip() or done.stdout.strip())
    for path in to.rglob("*.map"):
        path.unlink()  # of the theme's own sources, a third of the site
    return drawn
