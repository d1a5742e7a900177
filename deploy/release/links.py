"""What a built site asks for and links to: everything is in it, and no request leaves it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"img": "src", "link": "href", "script": "src", "source": "src", "iframe": "src"}
"""Elements whose address a browser asks for by itself, and the attribute that has it."""

REFERENCES = {"canonical", "next", "prev"}
"""Kinds of `<link>` that nothing is asked for by."""


@dataclass
class Parsed(HTMLParser):
    """The addresses of a page, and where one can go in it."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif (address := given.get(LOADS.get(tag, ""))) and given.get("rel") not in REFERENCES:
            self.loads.append(address)


@cache
def _parsed(page: Path) -> Parsed:
    parsed = Parsed()
    parsed.feed(page.read_text())
    return parsed


def faults(site: Path) -> Iterator[str]:
    """Yield every address in the pages of a folder that leads nowhere, or out by itself."""
    _parsed.cache_clear()
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).as_posix()
        parsed = _parsed(page)
        yield from (
            f"{name}: asks another server for {each}" for each in parsed.loads if "//" in each
        )
        for link in sorted({*parsed.links, *parsed.loads}):
            if (
                not urlsplit(link).scheme
                and not link.startswith("//")
                and not _leads(link, page, site)
            ):
                yield f"{name}: {link} leads nowhere"
    for sheet in sorted(site.rglob("*.css")):
        if "url(http" in sheet.read_text() or "url(//" in sheet.read_text():
            yield f"{sheet.relative_to(site).as_posix()}: asks another server"


def _leads(link: str, page: Path, site: Path) -> bool:
    parts = urlsplit(link)
    path = unquote(parts.path)
    start = site if path.startswith("/") else page.parent
    target = (start / path.lstrip("/")).resolve() if path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target.suffix != ".html" or anchor in _parsed(target).ids
