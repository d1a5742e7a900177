"""What a person does with keys and switches, and what stays of it on the next page."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.console.admin_api import Api
from tests.support.console.browser import KEY, Window, path_of, refresh, window
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

GROUND = "getComputedStyle(document.documentElement).backgroundColor"
FOCUSED = "document.activeElement.textContent.trim()"
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"
ZONE = "America/New_York"


@pytest.fixture
def opened(browser: Browser, looked_at: Api) -> Iterator[Window]:
    """An operator's window, in a zone that is never UTC."""
    with window(browser, looked_at, "operator", timezone_id=ZONE, color_scheme="light") as opened:
        yield opened


def test_keys_lead_through_the_console_without_a_mouse(opened: Window) -> None:
    page = opened.go("/")
    page.keyboard.press("/")
    page.keyboard.type(KEY.text)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Current state")).to_be_visible()
    assert path_of(page.url) == f"/entries/{KEY.text}"
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
    second = page.locator("main").get_by_role("row").nth(2).get_by_role("link").first
    number = second.text_content()
    for key in "jj":
        page.keyboard.press(key)
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Dead letter {number}")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()


def test_focus_begins_with_the_way_past_the_menu_and_is_seen(opened: Window) -> None:
    page = opened.go("/entries")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Skip to the content"
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(OUTLINE) != "none", page.evaluate(FOCUSED)


def test_theme_follows_the_system_until_it_is_chosen(opened: Window) -> None:
    page = opened.go("/")
    light = page.evaluate(GROUND)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(GROUND)
    assert light != dark
    page.get_by_role("button", name="Theme: auto").click()
    assert page.evaluate(GROUND) == light, "light, also where the system is dark"
    opened.go("/entries")
    assert page.evaluate(GROUND) == light, "the choice stays"
    page.get_by_role("button", name="Theme: light").click()
    page.emulate_media(color_scheme="light")
    assert page.evaluate(GROUND) == dark


def test_times_are_shown_in_utc_or_in_the_zone_of_the_browser(opened: Window) -> None:
    time = opened.go("/entries").locator("main time").first
    expect(time).to_contain_text("UTC")
    in_utc = time.text_content()
    opened.page.get_by_role("button", name="Zone: UTC").click()
    for _ in range(2):
        expect(time).to_contain_text(
            "-05:00" if "-05:00" in (time.text_content() or "") else "-04:00"
        )
        assert time.get_attribute("title") == in_utc
        opened.page.reload()
    opened.page.get_by_role("button", name=f"Zone: {ZONE}").click()
    expect(time).to_have_text(in_utc or "")


def test_click_that_began_before_a_refresh_ended_leads_on(opened: Window, looked_at: Api) -> None:
    """A link that is replaced while the pointer is down would miss its click."""
    page = opened.go("/")
    refreshes: list[Route] = []

    def hold(route: Route) -> None:
        refreshes.append(route)

    page.route(f"{looked_at.url}/", hold)
    eventually(lambda: refresh(page, refreshes))
    page.get_by_role("link", name=re.compile("dead letters? (is|are) open")).first.hover()
    page.mouse.down()
    with page.expect_event("requestfinished"):
        refreshes[0].continue_()
    page.mouse.up()
    page.wait_for_url(re.compile("/dead"))
