"""The site of the documents in a real browser: `make docs-check`, after `make docs`.

No address outside the server is asked for, and nothing is said on the console: a window fails.
"""

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.deploy.release.pages import ROOT, WORK, SiteError, build, pages
from tests.support.console.browser import NARROW, Window, chromium
from tests.support.servers.threads import in_threads

KEPT = Path(os.environ.get("HOLDFAST_TEST_SCREENSHOTS") or WORK / "pictures")

BUILT = WORK / "site"

DIAGRAMS = "/docs/delivery/"

FOREIGN = re.compile(
    r"""<(?:script|img|source|iframe)\b[^>]*\ssrc="?(?:https?:)?//"""
    r"""|<link\b(?![^>]*\srel="?(?:canonical|next|prev)\b)[^>]*\shref="?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//"""
)
"""An address of another server that a browser asks for by itself."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of the built site."""
    assert BUILT.exists(), "`make docs` builds it"
    handler = functools.partial(_Quiet, directory=str(BUILT))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with in_threads(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@contextmanager
def opened(browser: Browser, url: str, **options: object) -> Iterator[Window]:
    window = Window(browser, url, **options)
    try:
        yield window
    finally:
        window.context.close()
    assert window.faults == []


def kept(page: Page, name: str) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=KEPT / f"{name}.png")


def too_wide(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def test_no_page_asks_another_server() -> None:
    texts = {path: path.read_text() for end in ("html", "css") for path in BUILT.rglob(f"*.{end}")}
    assert texts
    assert [path for path, text in texts.items() if FOREIGN.search(text)] == []


def test_every_page_is_in_the_site() -> None:
    names = {page.relative_to(ROOT).with_suffix("").as_posix() for page in pages()}
    built = {page.parent.relative_to(BUILT).as_posix() for page in BUILT.rglob("index.html")}
    assert {name.removesuffix("README").strip("/") or "." for name in names} <= built


def test_code_in_a_table_has_no_backslash() -> None:
    texts = {page: page.read_text() for page in BUILT.rglob("*.html")}
    assert [page for page, text in texts.items() if "\\|" in text] == []
    commands = texts[BUILT / "docs" / "reference" / "commands" / "index.html"]
    assert "<code>entry list|show|tail</code>" in commands


def test_broken_link_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1"\n')
    (tmp_path / "docs" / "README.md").write_text("# All\n\n## Part\n\n[home](../README.md)\n")
    (tmp_path / "README.md").write_text("# Home\n\n[all](docs/README.md#part)\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "bin").symlink_to(WORK / "bin")
    build(tmp_path / "site", tmp_path, work)
    for link in ("docs/nowhere.md", "docs/README.md#nowhere"):
        (tmp_path / "README.md").write_text(f"# Home\n\n[all]({link})\n")
        with pytest.raises(SiteError, match="nowhere"):
            build(tmp_path / "site", tmp_path, work)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_home_shows_its_drawing_whole(scheme: str, browser: Browser, url: str) -> None:
    with opened(browser, url, color_scheme=scheme) as window:
        page = window.go("/")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Holdfast")
        drawing = page.locator("pre code").first
        assert drawing.evaluate("each => each.scrollWidth <= each.clientWidth")
        kept(page, f"home-{scheme}")


def test_search_finds_a_page_and_leads_to_it(browser: Browser, url: str) -> None:
    with opened(browser, url) as window:
        page = window.go("/")
        page.get_by_role("textbox", name="Search").click()
        page.keyboard.type("dead letters")
        result = page.locator(".md-search-result__item a").first
        expect(result).to_contain_text("Sending again")
        kept(page, "search")
        result.click()
        page.wait_for_url("**/docs/operators/resending/**")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Sending again")


def test_diagrams_are_drawn_by_the_site_itself(browser: Browser, url: str) -> None:
    if not (BUILT / "mermaid.min.js").exists():
        pytest.skip("npm was not there: the site shows diagrams as text")
    with opened(browser, url) as window:
        page = window.go(DIAGRAMS)
        drawn = page.locator("div.mermaid")
        expect(drawn).to_have_count(2)
        assert min(each["height"] for each in map(_box, drawn.all())) > 100
        drawn.first.scroll_into_view_if_needed()
        kept(page, "diagram")


def _box(element: object) -> dict[str, float]:
    return element.bounding_box()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("address", ["/", "/docs/reference/metrics/", DIAGRAMS])
def test_narrow_screen_is_not_scrolled_sideways(address: str, browser: Browser, url: str) -> None:
    with opened(browser, url) as window:
        window.page.set_viewport_size({"width": NARROW, "height": 800})
        page = window.go(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert not too_wide(page)
        kept(page, f"narrow-{address.strip('/').rpartition('/')[2] or 'home'}")
