"""What the other tests here rely on: a window notes what no page may do, and a look finds it."""

from playwright.sync_api import Browser

from tests.support.console.admin_api import Api
from tests.support.console.browser import INSPECT, MARKUP, Window

DRAW = "text => document.querySelector('main').insertAdjacentHTML('beforeend', text)"
FADE = "document.querySelector('h1').style.color = 'rgb(200 200 200)'"
LEAVE = "document.body.append(Object.assign(new Image(), { src: 'http://evil.example/x' }))"
THROW = "setTimeout(() => { throw new Error('thrown') })"


def test_window_notes_what_no_page_may_do(browser: Browser, looked_at: Api) -> None:
    opened = Window(browser, looked_at.url)
    try:
        page = opened.go("/login")
        assert page.evaluate(INSPECT)["drawn"] == []
        assert page.evaluate(INSPECT)["faint"] == []
        assert opened.faults == []
        page.evaluate(DRAW, MARKUP)
        page.evaluate(FADE)
        page.evaluate(LEAVE)
        page.evaluate("alert('said')")
        with opened.context.expect_event("weberror"):
            page.evaluate(THROW)
        seen, noted = page.evaluate(INSPECT), "\n".join(opened.faults)
    finally:
        opened.context.close()
    assert any("onerror" in each for each in seen["drawn"])
    assert any("Log in" in each for each in seen["faint"])
    for fault in ("dialog: said", "inline event handler", "http://evil.example/x", "thrown"):
        assert fault in noted
