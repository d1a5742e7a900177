"""The payouts page on a screen as wide as a phone."""

import pytest
from playwright.sync_api import Browser

from tests.support.console.browser import NARROW
from tests.support.dispatch.payouts import empty_database, payouts
from tests.support.dispatch.sender import Sent

pytestmark = pytest.mark.rest

LINE_PIXELS = 24
"""One line of the page."""


def test_payouts_page_reads_on_a_phone(server_dsn: str, browser: Browser) -> None:
    with empty_database(server_dsn) as dsn, payouts(dsn) as service:
        assert service.send(Sent.of("m_482", "block", 1)).json()["outcome"] == "applied"
        page = browser.new_page(viewport={"width": NARROW, "height": 800})
        try:
            page.goto(service.url)
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
            regions = page.locator(".scroll")
            assert regions.evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
            cells = page.locator("td, tbody th")
            sizes = cells.evaluate_all("all => all.map(e => [e.innerText, e.offsetHeight])")
            assert sizes
            for text, height in sizes:
                # At least ten letters a line, with the heading of the column before them.
                assert height <= LINE_PIXELS * (2 + len(text) // 10), text
            assert "m_482" in page.locator("tbody th").first.inner_text()
        finally:
            page.close()
